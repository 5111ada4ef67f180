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
 * \file src/runtime/contrib/dnnl/core/plan/constants.h
 * \brief Constants that are the same in several plans of a process are in memory once.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_CONSTANTS_H_
#define TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_CONSTANTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "../exec/fork.h"
#include "../onednn.h"

namespace tvm::runtime::contrib::dnnl_backend {

/*!
 * \brief The constants of all plans of this process, as they are packed.
 *
 * One model is often there several times: for another batch size, for another thread, in another
 * version of its last layers. Two constants are one if all their bytes are equal, however they came
 * about. The table does not keep anything alive.
 */
class SharedConstants {
 public:
  static SharedConstants* Global();

  /*!
   * \brief Another constant with the same bytes, if there is one; else `data`, which others may get
   *        from now on. Nobody may write to it any more.
   */
  std::shared_ptr<void> Share(std::shared_ptr<void> data, size_t bytes);

  /*! \brief A constant, where in its memory it begins, and the layouts it goes from and to. */
  struct Packing {
    std::shared_ptr<void> source;
    size_t offset;
    dnnl::memory::desc from, to;
    bool is_weight;
  };

  /*!
   * \brief The same constant as another plan has packed it, empty if there is none.
   *
   * Plans of other shapes want most weights in the same layout: this finds them before they are
   * packed. A constant of another module is another one, even in the same memory, which may have
   * changed in between.
   */
  std::shared_ptr<void> FindPacked(const Packing& packing);
  /*! \brief Let others find what was packed. */
  void KeepPacked(const Packing& packing, const std::shared_ptr<void>& packed);

 private:
  struct Known {
    std::weak_ptr<void> data;
    size_t bytes;
  };
  struct KnownPacking {
    std::weak_ptr<void> source;
    size_t offset;
    dnnl::memory::desc from, to;
    bool is_weight;
    std::weak_ptr<void> packed;
  };

  void RemoveExpired();

  ForkSafeMutex mutex_;
  std::unordered_multimap<uint64_t, Known> known_;
  /*! \brief By where the source is. */
  std::unordered_multimap<const void*, KnownPacking> packings_;
  /*! \brief When the tables have grown to this, those that are gone are looked for. */
  size_t next_removal_{0};
};

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif  // TVM_RUNTIME_CONTRIB_DNNL_CORE_PLAN_CONSTANTS_H_
