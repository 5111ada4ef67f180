// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/artifacts/artifact.h
 * \brief Graphs with all that is needed to load and to run them.
 */
#ifndef TESTS_CPP_RUNTIME_ARTIFACTS_ARTIFACT_H_
#define TESTS_CPP_RUNTIME_ARTIFACTS_ARTIFACT_H_

#include <dlpack/dlpack.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "json_tree.h"
#include "memory.h"
#include "mutate.h"

namespace artifacts {

/*! \brief Shape and element type of a tensor. An open dimension is -1. */
struct TensorType {
  std::vector<int64_t> shape;
  DLDataType dtype;

  /*! \brief As a number that cannot overflow. */
  double elements() const;
  double bytes() const;
};

/*! \brief What a caller of a graph must know. */
struct Signature {
  std::string symbol;
  std::vector<std::string> constant_names;
  std::vector<TensorType> inputs;
  std::vector<TensorType> constants;
  std::vector<TensorType> outputs;
  /*! \brief An upper bound of the steps of any op: the product of the two largest tensors. */
  double work{0};

  /*! \brief Bytes of inputs, constants and outputs. */
  double bytes() const;
};

/*!
 * \brief Read the signature of a graph.
 * \param names The constants that the module has; nullptr for those of the graph.
 * \return Whether the graph has one, right or wrong.
 */
bool ReadSignature(const Json& graph, const std::vector<std::string>* names, Signature* signature);

/*!
 * \brief Give the open dimensions of a signature sizes: those of another where that has the rank.
 * \param more What is added to them.
 */
Signature Closed(Signature signature, const Signature& from, int64_t more = 0);

/*! \brief What tensors are filled with. */
enum class Fill { kOrdinary, kZeros, kOnes, kAnything };

Fill AnyFill(Random* random);

/*! \brief A tensor of a caller, between pages that nobody may touch. */
class Tensor {
 public:
  Tensor(const TensorType& type, size_t alignment);

  void FillWith(Fill fill, Random* random);
  void FillWith(char byte);
  std::string Bytes() const;
  bool IsIntact() const { return memory_->IsIntact(); }
  DLTensor* dl() { return &dl_; }

 private:
  TensorType type_;
  std::unique_ptr<Guarded> memory_;
  DLTensor dl_;
};

}  // namespace artifacts

#endif  // TESTS_CPP_RUNTIME_ARTIFACTS_ARTIFACT_H_
