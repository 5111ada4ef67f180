// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/artifacts/json_tree.h
 * \brief Any JSON value as a tree that may be changed; numbers and texts stay as they are written.
 */
#ifndef TESTS_CPP_RUNTIME_ARTIFACTS_JSON_TREE_H_
#define TESTS_CPP_RUNTIME_ARTIFACTS_JSON_TREE_H_

#include <string>
#include <utility>
#include <vector>

namespace artifacts {

/*! \brief A JSON value. */
struct Json {
  enum class Kind { kLiteral, kText, kArray, kObject };

  Kind kind{Kind::kLiteral};
  /*! \brief A number, true, false or null; or what stands between the quotes of a text. */
  std::string text{"null"};
  /*! \brief Of an object, a key for each item. */
  std::vector<std::string> keys;
  std::vector<Json> items;

  bool IsScalar() const { return kind == Kind::kLiteral || kind == Kind::kText; }
  /*! \brief The value of a key; null where there is none. */
  Json* Find(const std::string& key);
  const Json* Find(const std::string& key) const { return const_cast<Json*>(this)->Find(key); }
  void Set(const std::string& key, Json value);

  static Json Literal(std::string text) { return {Kind::kLiteral, std::move(text), {}, {}}; }
  static Json Text(std::string text) { return {Kind::kText, std::move(text), {}, {}}; }
  static Json Array(std::vector<Json> items) { return {Kind::kArray, "", {}, std::move(items)}; }
};

/*! \brief Read a text; false if it is not JSON. */
bool ParseJson(const std::string& text, Json* json);

std::string ToText(const Json& json);

/*! \brief Whether a graph is of version 2 of the format, with typed attributes. */
bool IsTyped(const Json& graph);

/*!
 * \brief The list of the shapes ("shape") or types ("dtype") of a node's outputs, in either
 * version; null where there is none.
 */
Json* OutputsOf(Json* node, const std::string& key);
inline const Json* OutputsOf(const Json& node, const std::string& key) {
  return OutputsOf(const_cast<Json*>(&node), key);
}

}  // namespace artifacts

#endif  // TESTS_CPP_RUNTIME_ARTIFACTS_JSON_TREE_H_
