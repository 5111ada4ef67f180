// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/artifacts/mutate.h
 * \brief Damages graphs and files, the same way each time for the same random numbers.
 */
#ifndef TESTS_CPP_RUNTIME_ARTIFACTS_MUTATE_H_
#define TESTS_CPP_RUNTIME_ARTIFACTS_MUTATE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "json_tree.h"

namespace artifacts {

/*! \brief Random numbers that are the same with every C++ library (splitmix64). */
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) { Next(); }

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  /*! \brief A number below `end`, which is not 0. */
  size_t Below(size_t end) { return Next() % end; }
  bool Chance(int percent) { return Below(100) < static_cast<size_t>(percent); }
  template <typename Items>
  const auto& Pick(const Items& items) {
    return items[Below(std::size(items))];
  }

 private:
  uint64_t state_;
};

/*! \brief What the graphs of a corpus say: each key with all values that it has anywhere. */
class Dictionary {
 public:
  void Add(const Json& json);

  bool empty() const { return keys_.empty(); }
  const std::string& AnyKey(Random* random) const { return random->Pick(keys_); }
  /*! \brief A value of a key; of any key where it has none. */
  const Json& AnyValue(const std::string& key, Random* random) const;

 private:
  std::vector<std::string> keys_;
  std::map<std::string, std::vector<Json>> values_;
  std::map<std::string, std::vector<std::string>> texts_;
};

/*! \brief Damage a graph in one to three places; what was done, in words. */
std::string MutateGraph(const Dictionary& dictionary, Random* random, Json* graph);

/*!
 * \brief Add an op that is legal and goes as far as its shapes let it, with post-ops, which is an
 * output; what was done.
 */
std::string AppendLegalOp(Random* random, Json* graph);

/*! \brief Damage one to four places of a text. */
std::string MutateText(Random* random, std::string* text);

/*! \brief Damage one to three places of a binary file, lengths above all. */
std::string MutateBinary(Random* random, std::string* bytes);

}  // namespace artifacts

#endif  // TESTS_CPP_RUNTIME_ARTIFACTS_MUTATE_H_
