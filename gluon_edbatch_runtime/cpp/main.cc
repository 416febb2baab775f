// Runs a model on samples: `edb_run FOLDER SAMPLES` writes a line of JSON for each.
#include <fstream>
#include <iostream>
#include <iterator>

#include "edb_model.h"

namespace {

const char kUsage[] =
    "usage: edb_run FOLDER [SAMPLES]\n\n"
    "Runs the model that edb.export wrote to FOLDER on a JSON list of samples, from a\n"
    "file or the standard input, and writes a line of JSON for each.\n";

std::string read(std::istream& stream) { return {std::istreambuf_iterator<char>(stream), {}}; }

}  // namespace

int main(int count, char** arguments) {
  if (count < 2 || count > 3 || arguments[1][0] == '-') {
    std::cerr << kUsage;
    return 2;
  }
  try {
    const edb::Model model(arguments[1]);
    std::ifstream file;
    if (count == 3) file.open(arguments[2]);
    if (count == 3 && !file) throw edb::Error(std::string(arguments[2]) + " cannot be read");
    for (const std::string& result : model.json(read(count == 3 ? file : std::cin)))
      std::cout << result << '\n';
    return 0;
  } catch (const edb::Error& error) {
    std::cerr << "edb_run: " << error.what() << '\n';
    return 1;
  }
}
