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

#include <algorithm>
#include <optional>
#include <vector>

#include "../../../../contrib/dnnl/core/error.h"
#include "../../../../contrib/dnnl/core/exec/threads.h"
#include "../../../../contrib/dnnl/core/kernels/attention.h"
#include "errors.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

template <typename T>
T* DataOf(const ffi::TensorView& tensor) {
  return reinterpret_cast<T*>(static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset());
}

/*! \brief What errors begin with. */
constexpr const char* kWhere = "the attention of a paged cache: ";

void CheckTensor(const char* name, const ffi::TensorView& tensor, int ndim, int code) {
  const DLDataType dtype = tensor.dtype();
  CORE_CHECK(tensor.ndim() == ndim && dtype.code == code && dtype.bits == 32 && dtype.lanes == 1)
      << kWhere << name << " has rank " << tensor.ndim() << " and " << int{dtype.bits}
      << " bits, expected: rank " << ndim << " and 32 bits";
  CORE_CHECK(tensor.IsContiguous()) << kWhere << name << " is not contiguous";
}

/*! \brief An array of numbers of rows or pages, which comes from the caller and is not trusted. */
class Indices {
 public:
  Indices(const char* name, const ffi::TensorView& tensor) : name_(name) {
    CheckTensor(name, tensor, 1, kDLInt);
    data_ = DataOf<const int32_t>(tensor);
    size_ = tensor.shape()[0];
  }

  int64_t size() const { return size_; }
  const int32_t* data() const { return data_; }
  int64_t operator[](int64_t i) const { return data_[i]; }

  void CheckSize(int64_t least) const {
    CORE_CHECK(size_ >= least) << kWhere << name_ << " has " << size_
                               << " elements, expected: " << least;
  }

  /*! \brief Check that elements are in a range. */
  void CheckRange(int64_t first, int64_t last, int64_t least, int64_t most) const {
    for (int64_t i = first; i < last; ++i) {
      CORE_CHECK(data_[i] >= least && data_[i] <= most)
          << kWhere << name_ << "[" << i << "] is " << data_[i] << ", expected: " << least << " to "
          << most;
    }
  }

  /*! \brief Check that the sequences, the rows [a[i], a[i + 1]), are among so many. */
  void CheckEnds(int64_t sequences, int64_t rows) const {
    CheckSize(sequences + 1);
    for (int64_t i = 0; i <= sequences; ++i) {
      CheckRange(i, i + 1, i == 0 ? 0 : data_[i - 1], rows);
    }
  }

 private:
  const char* name_;
  const int32_t* data_;
  int64_t size_;
};

/*! \brief What the functions have in common: queries, results, and sums of exponentials. */
class Queries {
 public:
  Queries(const ffi::TensorView& query, const ffi::TensorView& output,
          const ffi::TensorView& log_sums, bool causal, int64_t rotary_mode, double scale)
      : scope_(AvailableThreads(NumThreads())) {
    CheckTensor("the query", query, 3, kDLFloat);
    CheckTensor("the output", output, 3, kDLFloat);
    CheckTensor("lse", log_sums, 2, kDLFloat);
    rows_ = query.shape()[0];
    heads_ = query.shape()[1];
    width_ = query.shape()[2];
    CheckRows("the output", output);
    CheckRows("lse", log_sums);
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
  int64_t rows() const { return rows_; }

  /*! \brief Check the heads of the keys and values, and the widths of their rows. */
  void CheckKeys(int64_t kv_heads, int64_t width, int64_t value_width) const {
    CORE_CHECK(kv_heads > 0 && heads_ % kv_heads == 0)
        << kWhere << heads_ << " heads of the query do not share " << kv_heads << " of the keys";
    CORE_CHECK(width == width_ && value_width == shape_.value_width)
        << kWhere << "rows of keys and values have " << width << " and " << value_width
        << " elements, but those of the query and the output " << width_ << " and "
        << shape_.value_width;
  }

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
  void CheckRows(const char* name, const ffi::TensorView& tensor) const {
    CORE_CHECK(tensor.shape()[0] == rows_ && tensor.shape()[1] == heads_)
        << kWhere << name << " has " << tensor.shape()[0] << " rows of " << tensor.shape()[1]
        << " heads, but the query " << rows_ << " of " << heads_;
  }

  int64_t rows_, heads_, width_, threads_;
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
  const Indices ends("page_indptr", page_ends), numbers("page_indices", page_numbers);
  const Indices last_rows("length_info", lengths);
  const int64_t rows = pages.shape()[3], width = pages.shape()[4], heads = pages.shape()[2];
  CORE_CHECK(pages.shape()[1] == 2) << kWhere << "the cache has a dimension of " << pages.shape()[1]
                                    << " for keys and values, expected: 2";
  queries->CheckKeys(heads, width, width);
  const int64_t sequences = std::max<int64_t>(0, ends.size() - 1);
  ends.CheckEnds(sequences, numbers.size());
  last_rows.CheckSize(sequences);
  std::optional<Indices> starts;
  if (query_ends != nullptr) {
    starts.emplace("qo_indptr", *query_ends);
    starts->CheckEnds(sequences, queries->rows());
  } else {
    CORE_CHECK(sequences <= queries->rows())
        << kWhere << sequences << " sequences have " << queries->rows() << " rows of the query";
  }
  for (int64_t i = 0; i < sequences; ++i) {
    if (ends[i] == ends[i + 1]) continue;
    last_rows.CheckRange(i, i + 1, 1, rows);
    numbers.CheckRange(ends[i], ends[i + 1], 0, pages.shape()[0] - 1);
  }
  AttentionShape& shape = queries->shape();
  shape.kv_heads = heads;
  shape.key = shape.value = {0, rows * width, width};
  shape.page_rows = rows;
  shape.page = 2 * heads * rows * width;
  const auto* key = DataOf<const float>(pages);
  for (int64_t i = 0; i < sequences; ++i) {
    const int64_t count = ends[i + 1] - ends[i];
    const int64_t keys = count == 0 ? 0 : (count - 1) * rows + last_rows[i];
    queries->Run(starts ? (*starts)[i] : i, starts ? (*starts)[i + 1] : i + 1, keys, key,
                 key + heads * rows * width, numbers.data() + ends[i]);
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
    const Indices starts("qo_indptr", query_ends), firsts("kv_indptr", key_ends);
    const int64_t heads = key.shape()[1], width = key.shape()[2], value_width = value.shape()[2];
    CORE_CHECK(value.shape()[0] == key.shape()[0] && value.shape()[1] == heads)
        << kWhere << "there are " << key.shape()[0] << " keys of " << heads << " heads, but "
        << value.shape()[0] << " values of " << value.shape()[1];
    queries.CheckKeys(heads, width, value_width);
    const int64_t sequences = std::max<int64_t>(0, starts.size() - 1);
    starts.CheckEnds(sequences, queries.rows());
    firsts.CheckEnds(sequences, key.shape()[0]);
    queries.shape().kv_heads = heads;
    queries.shape().key = {0, width, heads * width};
    queries.shape().value = {0, value_width, heads * value_width};
    for (int64_t i = 0; i < sequences; ++i) {
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
