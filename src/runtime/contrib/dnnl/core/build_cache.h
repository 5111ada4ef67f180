/*
 * Licensed to the Apache Software Foundation (ASF) under one
 * or more contributor license agreements.  See the NOTICE file
 * distributed with this work for additional information
 * regarding copyright ownership.  The ASF licenses this file
 * to you under the Apache License, Version 2.0 (the
 * "License"); you may not use this file except in compliance
 * with the License.  You may obtain a copy of the License at
 *
 *   http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing,
 * software distributed under the License is distributed on an
 * "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
 * KIND, either express or implied.  See the License for the
 * specific language governing permissions and limitations
 * under the License.
 */

/*!
 * \file src/runtime/contrib/dnnl/core/build_cache.h
 * \brief A cache of what takes long to build, for many threads at once.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_BUILD_CACHE_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_BUILD_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "exec/fork.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief The values that were used last, by key.
 *
 * A value is built once, by the first thread that asks for it; others that want the same one wait,
 * and nobody else does. It stays alive with those who have it when the cache drops it. What a build
 * throws goes to all who wait, and is not kept: memory may have been short. A forked process has
 * the values that were there, and builds anew what another thread was building.
 */
template <typename Key, typename Value, typename Hash = std::hash<Key>>
class BuildCache {
 public:
  using Pointer = std::shared_ptr<Value>;

  /*! \brief The outcomes of the calls of Get. */
  struct Counts {
    uint64_t hits{0};   /*!< the value was there, or being built */
    uint64_t misses{0}; /*!< it had to be built */
  };

  /*! \brief The bytes that a value has now. Takes no lock. */
  using Bytes = size_t (*)(const Value&);

  /*!
   * \param capacity How many values are kept at most.
   * \param max_bytes How many bytes those have at most together, but that the last one stays.
   * \param bytes_of The bytes of one; null if they do not count.
   */
  explicit BuildCache(size_t capacity, size_t max_bytes = SIZE_MAX, Bytes bytes_of = nullptr)
      : capacity_(capacity), max_bytes_(max_bytes), bytes_of_(bytes_of) {}

  /*! \brief The value of a key, which `build()` makes if need be. It allocates nothing else. */
  template <typename Build>
  Pointer Get(const Key& key, const Build& build) {
    std::shared_future<Pointer> others;
    std::optional<std::promise<Pointer>> promise;
    {
      std::lock_guard<ForkSafeMutex> lock(mutex_);
      auto known = by_key_.find(key);
      if (known != by_key_.end() && known->second->IsLost()) {
        Remove(known);
        known = by_key_.end();
      }
      if (known != by_key_.end()) {
        ++counts_.hits;
        entries_.splice(entries_.begin(), entries_, known->second);
        if (known->second->value != nullptr) return known->second->value;
        others = known->second->building;
      } else {
        ++counts_.misses;
        promise.emplace();
        entries_.push_front({key, nullptr, promise->get_future().share(), NumForks()});
        by_key_[key] = entries_.begin();
      }
    }
    if (others.valid()) return others.get();
    return Finish(key, build, &*promise);
  }

  /*! \brief Another number of values to keep; those that were used longest ago go. */
  void SetCapacity(size_t capacity) {
    std::list<Entry> dropped;
    std::lock_guard<ForkSafeMutex> lock(mutex_);
    capacity_ = capacity;
    Trim(&dropped);
  }
  size_t capacity() const {
    std::lock_guard<ForkSafeMutex> lock(mutex_);
    return capacity_;
  }

  Counts counts() const {
    std::lock_guard<ForkSafeMutex> lock(mutex_);
    return counts_;
  }

  /*! \brief The values that are there, the one that was used last first. */
  std::vector<Pointer> values() const {
    std::lock_guard<ForkSafeMutex> lock(mutex_);
    std::vector<Pointer> values;
    for (const Entry& entry : entries_) {
      if (entry.value != nullptr) values.push_back(entry.value);
    }
    return values;
  }

 private:
  struct Entry {
    Key key;
    /*! \brief Null while it is built. Then the entry stays, whatever the capacity. */
    Pointer value;
    std::shared_future<Pointer> building;
    /*! \brief In which process it is built. */
    int fork;

    /*! \brief Whether who builds it did not come through a fork, and so nobody ever ends it. */
    bool IsLost() const { return value == nullptr && fork != NumForks(); }
  };
  using Entries = std::list<Entry>;
  using Known = std::unordered_map<Key, typename Entries::iterator, Hash>;

  template <typename Build>
  Pointer Finish(const Key& key, const Build& build, std::promise<Pointer>* promise) {
    Pointer value;
    try {
      value = build();
    } catch (...) {
      {
        std::lock_guard<ForkSafeMutex> lock(mutex_);
        Remove(by_key_.find(key));
      }
      promise->set_exception(std::current_exception());
      throw;
    }
    {
      // Dropped entries are freed without the lock.
      std::list<Entry> dropped;
      std::lock_guard<ForkSafeMutex> lock(mutex_);
      Entry& entry = *by_key_.find(key)->second;
      entry.value = value;
      entry.building = {};
      Trim(&dropped);
    }
    promise->set_value(value);
    return value;
  }

  void Remove(typename Known::iterator known) {
    entries_.erase(known->second);
    by_key_.erase(known);
  }

  /*! \brief Take out what is too many. It is not done before a build, which may yet fail. */
  void Trim(std::list<Entry>* dropped) {
    size_t count = 0, bytes = 0;
    for (auto it = entries_.begin(); it != entries_.end();) {
      const auto entry = it++;
      if (entry->value == nullptr) continue;
      ++count;
      if (bytes_of_ != nullptr) bytes += bytes_of_(*entry->value);
      if (count <= capacity_ && (bytes <= max_bytes_ || count == 1)) continue;
      by_key_.erase(entry->key);
      dropped->splice(dropped->begin(), entries_, entry);
    }
  }

  mutable ForkSafeMutex mutex_;
  size_t capacity_;
  const size_t max_bytes_;
  const Bytes bytes_of_;
  Counts counts_;
  /*! \brief The most recently used one is first. */
  Entries entries_;
  Known by_key_;
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_BUILD_CACHE_H_
