// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/valid_op.h
 * \brief A node that is valid, and the types of its operands.
 */
#ifndef TESTS_CPP_RUNTIME_DNNL_CORE_VALID_OP_H_
#define TESTS_CPP_RUNTIME_DNNL_CORE_VALID_OP_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/runtime/contrib/dnnl/core/lowering.h"

namespace dnnl_test {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

using Shape = std::vector<int64_t>;

/*! \brief A list, or one value, as texts. */
using Attr = std::vector<std::string>;

/*! \brief An op with what it reads, and what it writes then. */
struct ValidOp {
  std::string name;
  Types inputs;
  std::map<std::string, Attr> attrs;
  Types outputs;
  /*! \brief The inputs that are constants, of 0.25 or of zeros. */
  std::vector<int64_t> constants{};
};

inline TensorType Float32(Shape shape) { return {std::move(shape), {kDLFloat, 32, 1}}; }
inline TensorType Int32(Shape shape) { return {std::move(shape), {kDLInt, 32, 1}}; }
inline TensorType Bool(Shape shape) { return {std::move(shape), {kDLUInt, 1, 1}}; }
inline TensorType UInt8(Shape shape) { return {std::move(shape), {kDLUInt, 8, 1}}; }
inline TensorType Int8(Shape shape) { return {std::move(shape), {kDLInt, 8, 1}}; }

}  // namespace dnnl_test

#endif  // TESTS_CPP_RUNTIME_DNNL_CORE_VALID_OP_H_
