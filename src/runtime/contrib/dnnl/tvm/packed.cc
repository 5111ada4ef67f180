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
 * \file src/runtime/contrib/dnnl/tvm/packed.cc
 * \brief The packed functions that TVM's own schedules call for targets with -libs=dnnl.
 */
#include <tvm/runtime/data_type.h>
#include <tvm/runtime/logging.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>

#include <algorithm>
#include <string>
#include <vector>

#include "../c_source/attr_text.h"
#include "../c_source/kernel_cache.h"
#include "../c_source/op_kernel.h"
#include "../dnnl_kernel.h"
#include "errors.h"

namespace tvm {
namespace runtime {
namespace contrib {

namespace {

constexpr const char* kConv2D = "tvm.contrib.dnnl.conv2d";

std::string TextOf(const std::vector<int>& values) {
  json::JSONAttr::Row row;
  for (int value : values) row.push_back(std::to_string(value));
  return dnnl_backend::ToAttrText({row});
}

/*! \brief The type of a tensor, and its address. The text of the data type is kept in `dtype`. */
TVMDNNLTensor Describe(const DLTensor* tensor, const char* name, std::string* dtype, void** data) {
  ICHECK(tensor != nullptr && tensor->data != nullptr) << kConv2D << ": " << name << " is null";
  ICHECK_EQ(tensor->ndim, 4) << kConv2D << ": " << name << " must have four dimensions";
  int64_t stride = 1;
  for (int i = tensor->ndim - 1; i >= 0 && tensor->strides != nullptr; --i) {
    ICHECK(tensor->shape[i] == 1 || tensor->strides[i] == stride)
        << kConv2D << ": " << name << " has strides that are not those of a row-major tensor";
    stride *= tensor->shape[i];
  }
  *dtype = DLDataType2String(tensor->dtype);
  *data = static_cast<char*>(tensor->data) + tensor->byte_offset;
  TVMDNNLTensor description = {dtype->c_str(), tensor->ndim, {}, 0};
  std::copy(tensor->shape, tensor->shape + tensor->ndim, description.shape);
  return description;
}

}  // namespace

// The arguments are those of dnnl_conv2d in python/tvm/contrib/dnnl.py. It passes no dilation, so
// there is none. The last two say whether source and result are float32; the tensors say it, too.
TVM_REGISTER_GLOBAL(kConv2D).set_body([](TVMArgs args, TVMRetValue*) {
  ICHECK_EQ(args.size(), 13) << kConv2D << " expects 13 arguments";
  void* data[3];
  std::string dtypes[3];
  const char* names[] = {"src", "weights", "dst"};
  TVMDNNLTensor tensors[3];
  for (int i = 0; i < 3; ++i) tensors[i] = Describe(args[i], names[i], &dtypes[i], &data[i]);
  const int top = args[3], down = args[4], left = args[5], right = args[6];
  const int stride_h = args[7], stride_w = args[8], groups = args[9];
  const bool channel_last = args[10];

  const std::string padding = TextOf({top, left, down, right});
  const std::string strides = TextOf({stride_h, stride_w});
  const std::string group_text = std::to_string(groups);
  const TVMDNNLAttr attrs[] = {
      {"data_layout", channel_last ? "NHWC" : "NCHW"},
      {"kernel_layout", channel_last ? "HWIO" : "OIHW"},
      {"groups", group_text.c_str()},
      {"padding", padding.c_str()},
      {"strides", strides.c_str()},
  };
  const TVMDNNLOp op = {kConv2D, 0, "nn.conv2d", attrs, 5, tensors, 2, 1, nullptr};
  dnnl_backend::WithTVMErrors(
      [&]() { dnnl_backend::KernelCache::Global()->Get(op)->Run(op, data); });
});

}  // namespace contrib
}  // namespace runtime
}  // namespace tvm
