// Arrays in NumPy's files: .npy, and .npz as np.savez writes it (not compressed).
#pragma once

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "values.h"

namespace edb {

struct DTypeName {
  DType dtype;
  const char* name;
  const char* descr;  // in NumPy's files
};
constexpr DTypeName kDTypes[] = {
    {DType::kFloat32, "float32", "<f4"}, {DType::kFloat64, "float64", "<f8"},
    {DType::kUint8, "uint8", "|u1"},     {DType::kInt32, "int32", "<i4"},
    {DType::kInt8, "int8", "|i1"},       {DType::kInt64, "int64", "<i8"},
    {DType::kBool, "bool", "|b1"}};

inline std::string shown(DType dtype) {
  for (const DTypeName& each : kDTypes)
    if (each.dtype == dtype) return each.name;
  return "";
}

template <class T>
std::string shown(const std::vector<T>& shape) {
  std::string text = "(";
  for (const T size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + (shape.size() == 1 ? ",)" : ")");
}

inline std::string contents_of(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::stringstream data;
  data << stream.rdbuf();
  if (!stream || !data) throw Error(path + " cannot be read, or there is nothing in it");
  return data.str();
}

// A part of a file's contents, which outlive it; `name` is for messages.
struct Piece {
  std::string name;
  const char* data;
  size_t size;

  Piece part(size_t begin, size_t length, const std::string& called) const {
    if (begin > size || length > size - begin) throw Error(name + " is truncated");
    return {called, data + begin, length};
  }
  std::string text(size_t begin, size_t length) const {
    return std::string(part(begin, length, name).data, length);
  }
  // Little-endian, wherever it stands.
  uint64_t number(size_t begin, size_t bytes) const {
    const std::string digits = text(begin, bytes);
    uint64_t made = 0;
    for (size_t i = bytes; i-- > 0;) made = made << 8 | static_cast<uint8_t>(digits[i]);
    return made;
  }
};

struct Array {
  std::string descr;  // of the dtype, as NumPy has it
  std::vector<size_t> shape;
  Piece elements;

  // As messages have it.
  std::string type() const {
    for (const DTypeName& each : kDTypes)
      if (each.descr == descr) return each.name + shown(shape);
    return "elements of type " + descr + ", " + shown(shape);
  }
};

// What follows a key in the header of .npy, which is a dict as Python prints it.
inline std::string entry(const Piece& file, const std::string& header, const std::string& key) {
  const size_t place = header.find("'" + key + "': ");
  if (place == std::string::npos) throw Error(file.name + " is no array: it has no " + key);
  return header.substr(place + key.size() + 4);
}

inline Array array_of(const Piece& file) {
  if (file.size < 10 || file.text(0, 6) != "\x93NUMPY")
    throw Error(file.name + " is no array in NumPy's format (.npy)");
  const size_t wide = file.number(6, 1) == 1 ? 2 : 4, length = file.number(8, wide);
  const std::string header = file.text(8 + wide, length);
  if (entry(file, header, "fortran_order").compare(0, 5, "False") != 0)
    throw Error(file.name + " is in Fortran's order: write np.ascontiguousarray(array)");
  const size_t first = 8 + wide + length;
  Array made{entry(file, header, "descr"), {}, file.part(first, file.size - first, file.name)};
  made.descr = made.descr[0] == '\'' ? made.descr.substr(1, made.descr.find('\'', 1) - 1) : "many";
  const std::string shape = entry(file, header, "shape");
  for (const char* text = shape.c_str() + 1; *text >= '0' && *text <= '9';) {
    char* end;
    made.shape.push_back(std::strtoull(text, &end, 10));
    text = end + std::strspn(end, ", ");
  }
  return made;
}

// How many samples there are in an array that has one after the other, each of a type.
inline size_t samples_in(const Array& array, const Spec& spec) {
  std::vector<size_t> wanted(spec.shape.begin(), spec.shape.end());
  wanted.insert(wanted.begin(), array.shape.empty() ? 0 : array.shape[0]);
  bool fits = array.shape == wanted;
  for (const DTypeName& each : kDTypes)
    if (each.dtype == spec.dtype) fits = fits && each.descr == array.descr;
  if (!fits) {
    const std::string own = shown(spec.shape);
    throw Error(array.elements.name + " has " + array.type() + ", and the example " +
                shown(spec.dtype) + own + ": samples are stacked, as " + shown(spec.dtype) +
                "(N, " + own.substr(1));
  }
  if (wanted[0] > array.elements.size / spec.bytes())
    throw Error(array.elements.name + " is truncated");
  return wanted[0];
}

// --- .npz ----------------------------------------------------------------------------------------

// The size that stands in a directory's entry, or, where that is too large for it, in a field
// behind the entry's name.
inline uint64_t size_of_member(const Piece& file, size_t at, size_t name, size_t extra) {
  const uint64_t size = file.number(at + 24, 4);
  if (size != 0xFFFFFFFF) return size;
  for (size_t field = at + 46 + name; field + 12 <= at + 46 + name + extra;
       field += 4 + file.number(field + 2, 2))
    if (file.number(field, 2) == 1) return file.number(field + 4, 8);
  throw Error(file.name + " is no archive that can be read");
}

// Members of an archive by their names, without .npy.
inline std::map<std::string, Array> arrays_of_archive(const Piece& file) {
  size_t end = file.size < 22 ? 0 : file.size - 22;
  while (end && file.number(end, 4) != 0x06054B50) --end;
  if (!end) throw Error(file.name + " is truncated, or no archive of NumPy's (.npz)");
  std::map<std::string, Array> made;
  size_t at = file.number(end + 16, 4);
  for (size_t left = file.number(end + 10, 2); left; --left) {
    const size_t length = file.number(at + 28, 2), extra = file.number(at + 30, 2);
    std::string name = file.text(at + 46, length);
    if (file.number(at + 10, 2) != 0)
      throw Error(file.name + " is compressed: write it by np.savez, not np.savez_compressed");
    const size_t local = file.number(at + 42, 4);
    const size_t first = local + 30 + file.number(local + 26, 2) + file.number(local + 28, 2);
    const Piece member =
        file.part(first, size_of_member(file, at, length, extra), file.name + ": " + name);
    if (name.size() > 4 && name.substr(name.size() - 4) == ".npy") name.resize(name.size() - 4);
    made.emplace(name, array_of(member));
    at += 46 + length + extra + file.number(at + 32, 2);
  }
  return made;
}

// Arrays of the arguments, in their order: the one of .npy, or arr_0, arr_1, ... of .npz.
inline std::vector<Array> arrays_of(const Piece& file, size_t count) {
  if (file.size < 2 || file.text(0, 2) != "PK") {
    if (count == 1) return {array_of(file)};
    throw Error(file.name + " is no archive, and a sample has " + std::to_string(count) +
                " arrays: write np.savez(file, first, second, ...)");
  }
  const std::map<std::string, Array> found = arrays_of_archive(file);
  std::vector<Array> made;
  for (size_t i = 0; i < count; ++i) {
    const auto array = found.find("arr_" + std::to_string(i));
    if (array == found.end() || found.size() != count)
      throw Error(file.name + " has " + std::to_string(found.size()) + " arrays, and is to have " +
                  std::to_string(count) +
                  ", arr_0, arr_1, ..., as np.savez(file, first, second, "
                  "...) names them");
    made.push_back(array->second);
  }
  return made;
}

}  // namespace edb
