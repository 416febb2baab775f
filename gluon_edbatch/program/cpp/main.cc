// Reads samples from a file, runs the program, writes results to a file.

#include <malloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "machine.h"

namespace edb {
namespace {

constexpr const char* kUsage = R"(usage: program [OPTION]... SAMPLES RESULTS

Runs a program that gluon_edbatch exported for all samples of a file; samples regroup at every
branch.

  SAMPLES        NumPy's format. An array of all samples, np.save(file, np.stack(samples)); where a
                 sample has several arrays, np.savez(file, np.stack(first), np.stack(second), ...)
  RESULTS        JSON, a line for each sample: arrays as nested lists, tuples as lists

  --batch N      samples that are together at most (default 64)
  --max-steps N  blocks that a sample may run (default: as it was compiled)
  --bundle DIR   the exported folder (default: where this program is)
  --report       tells which ways samples went
  --repeat N     runs N times more, and tells the milliseconds a sample of the fastest
  --help         shows this

OMP_NUM_THREADS is the number of threads. If there is an error the status is 1, or 2 for one of the
command line, and nothing is written.
)";

struct UsageError : Error {
  using Error::Error;
};

struct Options {
  std::string samples, results, bundle;
  size_t batch = 64, max_steps = kProgram.max_steps, repeat = 0;
  bool report = false, help = false;
};

size_t number_of(const std::string& option, const std::string& text) {
  const bool is_number = !text.empty() && text.size() < 10 &&
                         text.find_first_not_of("0123456789") == std::string::npos;
  const size_t made = is_number ? std::stoul(text) : 0;
  if (!made) throw UsageError(option + " takes a number from 1 on, and not '" + text + "'");
  return made;
}

Options options_of(const std::vector<std::string>& words) {
  Options made;
  std::vector<std::string> files;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const auto next = [&] {
      if (++i == words.size()) throw UsageError(word + " needs a value");
      return words[i];
    };
    if (word == "--help" || word == "-h") made.help = true;
    else if (word == "--report") made.report = true;
    else if (word == "--batch") made.batch = number_of(word, next());
    else if (word == "--max-steps") made.max_steps = number_of(word, next());
    else if (word == "--repeat") made.repeat = number_of(word, next());
    else if (word == "--bundle") made.bundle = next();
    else if (word.size() > 1 && word[0] == '-') throw UsageError("there is no option " + word);
    else files.push_back(word);
  }
  if (made.help) return made;
  if (files.size() != 2) throw UsageError("two files are needed: SAMPLES and RESULTS");
  made.samples = files[0];
  made.results = files[1];
  return made;
}

// Samples of a file, and how many there are.
struct Samples {
  std::string data;
  std::vector<Array> arrays;  // parts of the data
  size_t count = 0;

  explicit Samples(const std::string& path) : data(contents_of(path)) {
    arrays = arrays_of({path, data.data(), data.size()}, kProgram.arguments.size());
    for (size_t i = 0; i < arrays.size(); ++i) {
      const size_t found = samples_in(arrays[i], kProgram.arguments[i]);
      if (i && found != count)
        throw Error(arrays[i].elements.name + " has " + std::to_string(found) + " samples, and " +
                    arrays[0].elements.name + " " + std::to_string(count));
      count = found;
    }
    if (!count) throw Error(path + " has no samples");
  }
  Samples(const Samples&) = delete;

  std::vector<Tensor> some(size_t first, size_t samples) const {
    std::vector<Tensor> made;
    for (size_t i = 0; i < arrays.size(); ++i) {
      const Spec& spec = kProgram.arguments[i];
      made.emplace_back(spec, samples);
      made.back().copy(0, arrays[i].elements.data + first * spec.bytes(), samples);
    }
    return made;
  }
};

// A line for each sample; `near` of the report then counts from the first of all samples.
std::string results_of(Machine& machine, const Samples& samples, size_t batch) {
  std::string made;
  for (size_t first = 0; first < samples.count; first += batch) {
    const size_t count = std::min(batch, samples.count - first), known = machine.report.near.size();
    for (const std::string& result : machine.run(samples.some(first, count), count))
      made += result + "\n";
    for (size_t i = known; i < machine.report.near.size(); ++i)
      machine.report.near[i].second += first;
  }
  return made;
}

// A file has another name until all is written; what is none, such as /dev/stdout, is kept.
void write_file(const std::string& path, const std::string& text) {
  struct stat found;
  const bool is_file = stat(path.c_str(), &found) != 0 || S_ISREG(found.st_mode);
  const std::string part = is_file ? path + ".part" : path;
  std::ofstream stream(part, std::ios::binary);
  stream << text;
  stream.close();
  if (!stream || (is_file && std::rename(part.c_str(), path.c_str()) != 0)) {
    if (is_file) std::remove(part.c_str());
    throw Error(path + " cannot be written");
  }
}

void show(const Report& report) {
  std::cerr << report.samples << " samples in " << report.runs << " runs of blocks\n";
  std::map<std::string, std::array<size_t, 2>> chosen;
  for (size_t i = 0; i < kProgram.blocks.size(); ++i)
    for (size_t side = 0; side < 2; ++side)
      if (kProgram.blocks[i].line) chosen[kProgram.blocks[i].line][side] += report.chosen[i][side];
  for (const auto& [line, counts] : chosen)
    std::cerr << "  " << line << "  true " << counts[0] << "  false " << counts[1] << "\n";
  for (const auto& [line, sample] : report.near)
    std::cerr << "  " << line << ": as good as equal for sample " << sample
              << ", rounding may have decided\n";
}

void time_it(Machine& machine, const Samples& samples, const Options& options) {
  using Clock = std::chrono::steady_clock;
  std::chrono::duration<double, std::milli> best = Clock::duration::max();
  for (size_t i = 0; i < options.repeat; ++i) {
    const Clock::time_point begin = Clock::now();
    results_of(machine, samples, options.batch);
    best = std::min<decltype(best)>(best, Clock::now() - begin);
  }
  std::cerr << best.count() / samples.count << " ms a sample\n";
}

// Where this program is, also where it was called by another name.
std::string own_folder() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  const std::string found(path, length < 0 ? 0 : length);
  return found.substr(0, found.rfind('/') + 1) + ".";
}

void run(const std::vector<std::string>& words) {
  Options options = options_of(words);
  if (options.help) {
    std::cout << kUsage << "\nA sample has:";
    for (const Spec& spec : kProgram.arguments)
      std::cout << " " << shown(spec.dtype) << shown(spec.shape);
    std::cout << "\n";
    return;
  }
  if (options.bundle.empty()) options.bundle = own_folder();
  const Samples samples(options.samples);
  Machine machine(options.bundle, std::min(options.batch, samples.count), options.max_steps);
  write_file(options.results, results_of(machine, samples, options.batch));
  if (options.report) show(machine.report);
  if (options.repeat) time_it(machine, samples, options);
}

}  // namespace

int status_of(const std::vector<std::string>& words) {
  try {
    run(words);
    return 0;
  } catch (const UsageError& error) {
    std::cerr << "program: " << error.what() << "\nprogram --help tells how it is used\n";
    return 2;
  } catch (const Error& error) {
    std::cerr << "program: " << error.what() << "\n";
    return 1;
  }
}

}  // namespace edb

int main(int count, char** words) {
  // MXNet would fuse operators by MKLDNN, and is wrong about some networks then.
  setenv("MXNET_SUBGRAPH_BACKEND", "default", 0);
  // Its threads would only wait for each other, as one predictor runs at a time.
  setenv("MXNET_ENGINE_TYPE", "NaiveEngine", 0);
  // Memory of a batch is kept for the next: given back, each page of it is cleared anew.
  mallopt(M_MMAP_THRESHOLD, 1 << 25);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  const int status = edb::status_of({words + 1, words + count});
  std::cout.flush();
  std::quick_exit(status);  // where MXNet has threads, it may crash while it is taken down
}
