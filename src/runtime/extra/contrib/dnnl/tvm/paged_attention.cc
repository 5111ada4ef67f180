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
 * \file src/runtime/extra/contrib/dnnl/tvm/paged_attention.cc
 * \brief The attention functions that TVM's PagedKVCache calls.
 *
 * Arguments are those of the functions that TVM generates for a CPU. Keys are already rotated.
 */
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/reflection/registry.h>

#include <vector>

#include "../../../../contrib/dnnl/core/error.h"
#include "../../../../contrib/dnnl/core/exec/threads.h"
#include "../../../../contrib/dnnl/core/ops/attention_kernel.h"
#include "errors.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

template <typename T>
T* DataOf(const ffi::TensorView& tensor) {
  return reinterpret_cast<T*>(static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset());
}

void CheckTensor(const char* name, const ffi::TensorView& tensor, int ndim, int code) {
  const DLDataType dtype = tensor.dtype();
  CORE_CHECK(tensor.ndim() == ndim && dtype.code == code && dtype.bits == 32 && dtype.lanes == 1)
      << "the attention of a paged cache: " << name << " has rank " << tensor.ndim() << " and "
      << int{dtype.bits} << " bits, expected: rank " << ndim << " and 32 bits";
  CORE_CHECK(tensor.IsContiguous())
      << "the attention of a paged cache: " << name << " is not contiguous";
}

/*! \brief What the functions have in common: queries, results, and sums of exponentials. */
class Queries {
 public:
  Queries(const ffi::TensorView& query, const ffi::TensorView& output,
          const ffi::TensorView& log_sums, bool causal, int64_t rotary_mode, double scale)
      : heads_(query.shape()[1]), width_(query.shape()[2]), scope_(NumThreads()) {
    CheckTensor("the query", query, 3, kDLFloat);
    CheckTensor("the output", output, 3, kDLFloat);
    CheckTensor("lse", log_sums, 2, kDLFloat);
    CORE_CHECK(rotary_mode == 0) << "the attention of a paged cache: rotary_mode=" << rotary_mode
                                 << " (rope_mode=INLINE) is not supported; use NORMAL";
    shape_.batch = 1;
    shape_.heads = heads_;
    shape_.width = width_;
    shape_.value_width = output.shape()[2];
    shape_.query = {0, width_, heads_ * width_};
    shape_.result = {0, shape_.value_width, heads_ * shape_.value_width};
    shape_.scale = static_cast<float>(scale);
    shape_.is_causal = causal;
    shape_.zeros = ZeroRows::kMasked;
    query_ = DataOf<const float>(query);
    output_ = DataOf<float>(output);
    log_sums_ = DataOf<float>(log_sums);
    threads_ = CurrentNumThreads();
  }

  AttentionShape& shape() { return shape_; }

  /*! \brief Compute the rows [first, last) of one sequence. */
  void Run(int64_t first, int64_t last, int64_t keys, const float* key, const float* value,
           const int32_t* pages) {
    if (first == last) return;
    shape_.queries = last - first;
    shape_.keys = keys;
    AttentionData<float> data;
    data.query = query_ + first * heads_ * width_;
    data.key = key;
    data.value = value;
    data.masks = {};
    data.mask_is_float = {};
    data.result = output_ + first * heads_ * shape_.value_width;
    data.pages = pages;
    data.log_sums = log_sums_ + first * heads_;
    const auto floats = static_cast<size_t>(AttentionWorkspace(shape_, threads_));
    if (workspace_.size() < floats) workspace_.resize(floats);
    data.workspace = workspace_.data();
    data.threads = threads_;
    Attention(shape_, data);
  }

 private:
  int64_t heads_, width_, threads_;
  ThreadScope scope_;
  AttentionShape shape_{};
  const float* query_;
  float *output_, *log_sums_;
  std::vector<float> workspace_;
};

/*!
 * \brief Attention to a cache of pages (pages, 2, heads, rows, width).
 * \param query_ends nullptr for one query of each sequence.
 */
void PagedAttention(Queries* queries, const ffi::TensorView* query_ends,
                    const ffi::TensorView& pages, const ffi::TensorView& page_ends,
                    const ffi::TensorView& page_numbers, const ffi::TensorView& lengths) {
  CheckTensor("the cache", pages, 5, kDLFloat);
  CheckTensor("page_indptr", page_ends, 1, kDLInt);
  CheckTensor("page_indices", page_numbers, 1, kDLInt);
  CheckTensor("length_info", lengths, 1, kDLInt);
  if (query_ends != nullptr) CheckTensor("qo_indptr", *query_ends, 1, kDLInt);
  AttentionShape& shape = queries->shape();
  const int64_t rows = pages.shape()[3], width = pages.shape()[4], heads = pages.shape()[2];
  shape.kv_heads = heads;
  shape.key = shape.value = {0, rows * width, width};
  shape.page_rows = rows;
  shape.page = 2 * heads * rows * width;
  const auto* key = DataOf<const float>(pages);
  const auto* ends = DataOf<const int32_t>(page_ends);
  const auto* numbers = DataOf<const int32_t>(page_numbers);
  const auto* last_rows = DataOf<const int32_t>(lengths);
  for (int64_t i = 0; i + 1 < page_ends.shape()[0]; ++i) {
    const int64_t count = ends[i + 1] - ends[i];
    const int64_t keys = count == 0 ? 0 : (count - 1) * rows + last_rows[i];
    const auto* starts = query_ends == nullptr ? nullptr : DataOf<const int32_t>(*query_ends);
    queries->Run(starts == nullptr ? i : starts[i], starts == nullptr ? i + 1 : starts[i + 1], keys,
                 key, key + heads * rows * width, numbers + ends[i]);
  }
}

void Decode(ffi::TensorView query, ffi::TensorView pages, ffi::TensorView page_ends,
            ffi::TensorView page_numbers, ffi::TensorView lengths,
            ffi::TensorView /*k_rope_pos_offset*/, ffi::TensorView /*q_rope_position*/,
            ffi::TensorView output, ffi::TensorView log_sums, int64_t rotary_mode,
            double /*rope_scale*/, double /*rope_theta*/, double scale) {
  WithFFIErrors([&]() {
    Queries queries(query, output, log_sums, false, rotary_mode, scale);
    PagedAttention(&queries, nullptr, pages, page_ends, page_numbers, lengths);
  });
}

void Prefill(ffi::TensorView query, ffi::TensorView query_ends, ffi::TensorView pages,
             ffi::TensorView page_ends, ffi::TensorView page_numbers, ffi::TensorView lengths,
             ffi::TensorView /*k_rope_pos_offset*/, ffi::TensorView /*q_rope_position*/,
             ffi::TensorView output, ffi::TensorView log_sums, int64_t causal, int64_t rotary_mode,
             double /*rope_scale*/, double /*rope_theta*/, double scale) {
  WithFFIErrors([&]() {
    Queries queries(query, output, log_sums, causal != 0, rotary_mode, scale);
    PagedAttention(&queries, &query_ends, pages, page_ends, page_numbers, lengths);
  });
}

void RaggedPrefill(ffi::TensorView query, ffi::TensorView query_ends, ffi::TensorView key,
                   ffi::TensorView value, ffi::TensorView key_ends,
                   ffi::TensorView /*q_rope_position*/, ffi::TensorView /*k_rope_pos_offset*/,
                   ffi::TensorView output, ffi::TensorView log_sums, int64_t causal,
                   int64_t rotary_mode, double /*rope_scale*/, double /*rope_theta*/,
                   double scale) {
  WithFFIErrors([&]() {
    Queries queries(query, output, log_sums, causal != 0, rotary_mode, scale);
    CheckTensor("the key", key, 3, kDLFloat);
    CheckTensor("the value", value, 3, kDLFloat);
    CheckTensor("qo_indptr", query_ends, 1, kDLInt);
    CheckTensor("kv_indptr", key_ends, 1, kDLInt);
    const int64_t heads = key.shape()[1], width = key.shape()[2], value_width = value.shape()[2];
    queries.shape().kv_heads = heads;
    queries.shape().key = {0, width, heads * width};
    queries.shape().value = {0, value_width, heads * value_width};
    const auto* starts = DataOf<const int32_t>(query_ends);
    const auto* firsts = DataOf<const int32_t>(key_ends);
    for (int64_t i = 0; i + 1 < query_ends.shape()[0]; ++i) {
      queries.Run(starts[i], starts[i + 1], firsts[i + 1] - firsts[i],
                  DataOf<const float>(key) + firsts[i] * heads * width,
                  DataOf<const float>(value) + firsts[i] * heads * value_width, nullptr);
    }
  });
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef()
      .def("runtime.contrib.dnnl.paged_decode", Decode)
      .def("runtime.contrib.dnnl.paged_prefill", Prefill)
      .def("runtime.contrib.dnnl.ragged_prefill", RaggedPrefill);
}

}  // namespace tvm::runtime::contrib::dnnl_backend
