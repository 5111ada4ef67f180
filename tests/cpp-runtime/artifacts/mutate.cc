// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/artifacts/mutate.cc
 * \brief Damages texts and binary files, and keeps what the graphs of a corpus say.
 */
#include "mutate.h"

#include <algorithm>
#include <cstring>

namespace artifacts {

void Dictionary::Add(const Json& json) {
  for (size_t i = 0; i < json.items.size(); ++i) {
    Add(json.items[i]);
    if (json.kind != Json::Kind::kObject || json.keys[i] == "nodes") continue;
    const std::string& key = json.keys[i];
    const std::string text = ToText(json.items[i]);
    auto& texts = texts_[key];
    if (texts.size() >= 200 || text.size() > 1000) continue;
    if (std::find(texts.begin(), texts.end(), text) != texts.end()) continue;
    if (texts.empty()) keys_.push_back(key);
    texts.push_back(text);
    values_[key].push_back(json.items[i]);
  }
}

const Json& Dictionary::AnyValue(const std::string& key, Random* random) const {
  const auto known = values_.find(key);
  return random->Pick(known == values_.end() ? values_.at(AnyKey(random)) : known->second);
}

std::string MutateText(Random* random, std::string* text) {
  const std::string alphabet = "{}[]\",:0123456789-+.eE\\ \n\x7f\xff";
  std::string done;
  for (size_t rounds = 1 + random->Below(4); rounds > 0 && !text->empty(); --rounds) {
    const size_t at = random->Below(text->size());
    const size_t from = random->Below(text->size());
    const char letter = random->Pick(alphabet);
    switch (random->Below(4)) {
      case 0:
        (*text)[at] = letter;
        break;
      case 1:
        text->erase(at, 1 + random->Below(9));
        break;
      case 2:
        text->insert(at, 1, letter);
        break;
      default:
        text->insert(at, text->substr(from, 1 + random->Below(80)));
    }
    done += (done.empty() ? "text at " : ", ") + std::to_string(at);
  }
  return done;
}

std::string MutateBinary(Random* random, std::string* bytes) {
  constexpr uint64_t kLengths[] = {0,          1,          2,          255,
                                   1u << 20,   1u << 31,   1ull << 32, 1ull << 40,
                                   1ull << 62, ~0ull >> 1, ~0ull,      ~0ull - 7};
  std::string done;
  for (size_t rounds = 1 + random->Below(3); rounds > 0 && bytes->size() > 8; --rounds) {
    // What stands in front tells how long the rest is.
    const size_t end = random->Chance(50) ? std::min<size_t>(bytes->size(), 96) : bytes->size();
    const size_t at = random->Below(end - 7);
    char* place = &(*bytes)[at];
    switch (random->Below(6)) {
      case 0:
        *place = static_cast<char>(random->Next());
        break;
      case 1:
        *place = static_cast<char>(*place ^ (1 << random->Below(8)));
        break;
      case 2:
        std::memcpy(place, &random->Pick(kLengths), sizeof(uint64_t));
        break;
      case 3:
        std::memcpy(place, &random->Pick(kLengths), sizeof(uint32_t));
        break;
      case 4:
        bytes->erase(at, 1 + random->Below(16));
        break;
      default:
        bytes->resize(at);
    }
    done += (done.empty() ? "bytes at " : ", ") + std::to_string(at);
  }
  return done;
}

}  // namespace artifacts
