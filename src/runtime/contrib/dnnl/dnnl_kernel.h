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
 * \file src/runtime/contrib/dnnl/dnnl_kernel.h
 * \brief The kernels that generated C source calls: one Relay op, or composite, a call.
 *
 * Plain C, so that C99 and C++ compilers accept it. What an op is, which attributes it has and how
 * it is run, is not known here: an op is described in the words of the JSON graph and goes through
 * the same lowerings as a node of the JSON runtime.
 *
 * All functions return 0, or -1 with the reason in TVMGetLastError(). None of them throws.
 */
#ifndef TVM_RUNTIME_CONTRIB_DNNL_DNNL_KERNEL_H_
#define TVM_RUNTIME_CONTRIB_DNNL_DNNL_KERNEL_H_

#include <dlpack/dlpack.h>
#include <stdint.h>
#include <tvm/runtime/c_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/*! \brief The largest rank of a tensor, which is oneDNN's. */
#define TVM_DNNL_MAX_NDIM 12

/*!
 * \brief An attribute of an op.
 *
 * Its value is the text of a scalar, or of an array with commas between the items: "1,1". The rows
 * of an array of arrays end in semicolons: "0,0;1,1;". A backslash takes the meaning from a comma,
 * a semicolon or a backslash. An attribute that is null is left out.
 *
 * The attributes of post-op i of a composite are called "post_ops.<i>.<name>"; "root_op" and
 * "post_ops" name the ops of the composite.
 */
typedef struct {
  const char* name;
  const char* value;
} TVMDNNLAttr;

/*! \brief The type of an input or output: a dense row-major tensor. */
typedef struct {
  /*! \brief As TVM writes it: "float32". */
  const char* dtype;
  int32_t ndim;
  int64_t shape[TVM_DNNL_MAX_NDIM];
  /*!
   * \brief For an input that has the same values in every call: 1 more than its index among the
   * constants of the module. Else 0.
   */
  int32_t constant;
} TVMDNNLTensor;

/*! \brief An op and what it is applied to. What it points at must outlive it. */
typedef struct {
  /*! \brief The function that the op is part of and its number there, for error messages. */
  const char* symbol;
  int32_t id;
  /*! \brief The name of the Relay op or of the composite. */
  const char* name;
  const TVMDNNLAttr* attrs;
  int32_t num_attrs;
  /*! \brief The inputs, then the outputs. */
  const TVMDNNLTensor* tensors;
  int32_t num_inputs;
  int32_t num_outputs;
  /*! \brief NULL at first; what the functions below keep here is theirs. */
  void* kernel;
} TVMDNNLOp;

/*!
 * \brief Create the primitives of ops and pack their constants, so that no run has to.
 *
 * A failure leaves the ops as they were before.
 * \param ops The ops.
 * \param num_ops How many there are.
 * \param constants The constants of the module. They must stay where and what they are until the
 *        ops are released.
 */
TVM_DLL int TVMDNNLPrepareOps(TVMDNNLOp* ops, int32_t num_ops, DLTensor* const* constants);

/*!
 * \brief Run an op. It is prepared on the spot if it was not before.
 *
 * Any number of threads may run one op at once.
 * \param op The op.
 * \param data The address of each input, then of each output. An output must not overlap another
 *        tensor. The addresses of constants are the same in each call.
 */
TVM_DLL int TVMDNNLRunOp(TVMDNNLOp* op, void* const* data);

/*! \brief Give up what ops keep. They may be prepared again. None of them may be running. */
TVM_DLL int TVMDNNLReleaseOps(TVMDNNLOp* ops, int32_t num_ops);

/*!
 * \brief Run an op that is described for this one call; all its inputs are read at each call.
 *
 * The primitive is kept for ops of the same description, as long as it is one of those
 * that were used last.
 */
TVM_DLL int TVMDNNLRunOnce(const TVMDNNLOp* op, void* const* data);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // TVM_RUNTIME_CONTRIB_DNNL_DNNL_KERNEL_H_
