// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/artifacts/json_tree.cc
 * \brief Any JSON value as a tree that may be changed; numbers and texts stay as they are written.
 */
#include "json_tree.h"

#include <algorithm>

namespace artifacts {

namespace {

/*! \brief Deeper than any graph, and far from the end of the stack. */
constexpr int kDeepest = 64;

/*! \brief Reads one text from its beginning to its end. */
class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) {}

  bool ReadAll(Json* json) { return ReadValue(json, 0) && Next() == '\0' && at_ == text_.size(); }

 private:
  char Next() {
    at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size());
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool Skip(char c) {
    if (Next() != c) return false;
    ++at_;
    return true;
  }

  bool ReadQuoted(std::string* out) {
    if (!Skip('"')) return false;
    const size_t begin = at_;
    for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\') ++at_;
    }
    if (at_ >= text_.size()) return false;
    *out = text_.substr(begin, at_++ - begin);
    return true;
  }

  bool ReadItems(Json* json, char end, int depth) {
    ++at_;
    if (Skip(end)) return true;
    do {
      if (json->kind == Json::Kind::kObject) {
        json->keys.emplace_back();
        if (!ReadQuoted(&json->keys.back()) || !Skip(':')) return false;
      }
      json->items.emplace_back();
      if (!ReadValue(&json->items.back(), depth + 1)) return false;
    } while (Skip(','));
    return Skip(end);
  }

  bool ReadValue(Json* json, int depth) {
    if (depth > kDeepest) return false;
    const char c = Next();
    if (c == '{' || c == '[') {
      json->kind = c == '{' ? Json::Kind::kObject : Json::Kind::kArray;
      return ReadItems(json, c == '{' ? '}' : ']', depth);
    }
    if (c == '"') {
      json->kind = Json::Kind::kText;
      return ReadQuoted(&json->text);
    }
    const size_t end = std::min(text_.find_first_of(",:]}{[\" \t\r\n", at_), text_.size());
    json->text = text_.substr(at_, end - at_);
    at_ = end;
    return !json->text.empty();
  }

  const std::string& text_;
  size_t at_{0};
};

void Append(const Json& json, std::string* text) {
  if (json.kind == Json::Kind::kLiteral) {
    *text += json.text;
  } else if (json.kind == Json::Kind::kText) {
    *text += '"' + json.text + '"';
  } else {
    const bool is_object = json.kind == Json::Kind::kObject;
    *text += is_object ? '{' : '[';
    for (size_t i = 0; i < json.items.size(); ++i) {
      if (i > 0) *text += ", ";
      if (is_object) *text += '"' + json.keys[i] + "\": ";
      Append(json.items[i], text);
    }
    *text += is_object ? '}' : ']';
  }
}

}  // namespace

Json* Json::Find(const std::string& key) {
  const auto it = std::find(keys.begin(), keys.end(), key);
  return it == keys.end() ? nullptr : &items[it - keys.begin()];
}

void Json::Set(const std::string& key, Json value) {
  if (kind != Kind::kObject) return;
  if (Json* known = Find(key)) {
    *known = std::move(value);
    return;
  }
  keys.push_back(key);
  items.push_back(std::move(value));
}

bool ParseJson(const std::string& text, Json* json) {
  *json = Json();
  return Parser(text).ReadAll(json);
}

bool IsTyped(const Json& graph) {
  const Json* version = graph.Find("format_version");
  return version != nullptr && version->text == "2";
}

Json* OutputsOf(Json* node, const std::string& key) {
  Json* attrs = node->Find("attrs");
  Json* list = attrs == nullptr ? nullptr : attrs->Find(key);
  if (list == nullptr || list->kind != Json::Kind::kArray) return nullptr;
  // Version 1 has a list more around it.
  if (list->items.size() != 1 || list->items[0].kind != Json::Kind::kArray) return list;
  Json& inner = list->items[0];
  const bool is_list_of_shapes = !inner.items.empty() && inner.items[0].kind == Json::Kind::kArray;
  return key == "dtype" || is_list_of_shapes ? &inner : list;
}

std::string ToText(const Json& json) {
  std::string text;
  Append(json, &text);
  return text;
}

}  // namespace artifacts
