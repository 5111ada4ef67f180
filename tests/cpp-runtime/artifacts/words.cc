// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/artifacts/words.cc
 * \brief Other numbers, types and layouts than those of a graph.
 */
#include "words.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace artifacts {

namespace {

const char* const kSmall[] = {"0", "1", "2", "3", "4", "5", "7", "8", "16", "17", "33", "64"};
const char* const kExtreme[] = {"-1",
                                "-2",
                                "-8",
                                "1000",
                                "65536",
                                "1048577",
                                "2147483647",
                                "2147483648",
                                "-2147483648",
                                "4294967295",
                                "4294967296",
                                "1099511627776",
                                "4611686018427387904",
                                "9223372036854775807",
                                "9223372036854775808",
                                "-9223372036854775808",
                                "1000000000000000000000000000000",
                                "0.5",
                                "1e-30",
                                "1e30",
                                "-1e39",
                                "1e400",
                                "nan",
                                "inf",
                                "-inf",
                                ""};
const char* const kDTypes[] = {"float32", "float64", "float16", "bfloat16",  "int8",
                               "uint8",   "int32",   "int64",   "uint1",     "bool",
                               "int4",    "int16",   "handle",  "float32x4", "custom[x]32"};
const char* const kValues[] = {"null",
                               "true",
                               "[]",
                               "[[]]",
                               "[[[]]]",
                               "{}",
                               "[0]",
                               "[[0]]",
                               "[[\"\"]]",
                               "[[\"1\"]]",
                               "[[[1, 2]]]",
                               "\"\"",
                               "0",
                               "-1",
                               "1.5",
                               "\"1\"",
                               "[[\"a\"], [\"b\"]]",
                               "{\"op\": \"nn.relu\"}",
                               "[{\"op\": \"add\", \"operand\": 1}]",
                               "[{\"input\": 0, \"scale\": 1, \"zero_point\": 2}]"};

}  // namespace

bool IsNumber(const std::string& text) {
  if (text.empty()) return false;
  char* end = nullptr;
  std::strtod(text.c_str(), &end);
  return *end == '\0';
}

bool IsDType(const std::string& text) {
  return std::any_of(std::begin(kDTypes), std::end(kDTypes),
                     [&](const char* dtype) { return text == dtype; });
}

namespace {

/*! \brief Such as NCHW or OIHW16i16o. */
bool IsLayout(const std::string& text) {
  return text.size() > 1 && text.size() < 12 &&
         std::all_of(
             text.begin(), text.end(), [](char c) { return std::isalnum(c) != 0; }) &&
         std::isupper(text[0]) != 0 && !IsNumber(text) && text != "True" && text != "False";
}

}  // namespace

std::string OtherNumber(const std::string& text, Random* random) {
  if (random->Chance(25)) return random->Pick(kExtreme);
  if (random->Chance(30)) return random->Pick(kSmall);
  if (text.find_first_of(".eEn") != std::string::npos) {
    return std::to_string(std::strtod(text.c_str(), nullptr) * (random->Chance(50) ? -1 : 3));
  }
  const int64_t value = std::strtoll(text.c_str(), nullptr, 10) & 0xffffffff;
  const int64_t others[] = {value + 1, value - 1, value * 2, value / 2, -value, value + 2};
  return std::to_string(random->Pick(others));
}

namespace {

std::string OtherLayout(std::string text, Random* random) {
  if (random->Chance(60)) {
    std::swap(text[random->Below(text.size())], text[random->Below(text.size())]);
  } else if (random->Chance(50)) {
    text.erase(random->Below(text.size()), 1);
  } else {
    text.insert(random->Below(text.size() + 1), 1, "NCDHWOIGnc18abz"[random->Below(15)]);
  }
  return text;
}

}  // namespace

std::string AnyExtreme(Random* random) { return random->Pick(kExtreme); }

std::string AnyJson(Random* random) { return random->Pick(kValues); }

std::string AnyDType(Random* random) { return random->Pick(kDTypes); }

bool OtherWord(Random* random, std::string* text) {
  if (IsNumber(*text)) {
    *text = OtherNumber(*text, random);
  } else if (IsDType(*text)) {
    *text = AnyDType(random);
  } else if (IsLayout(*text) && random->Chance(70)) {
    *text = OtherLayout(*text, random);
  } else {
    return false;
  }
  return true;
}

}  // namespace artifacts
