// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/harness/bfloat16.h
 * \brief Numbers in bfloat16, apart from the conversions that are tested.
 */
#ifndef TESTS_CPP_RUNTIME_HARNESS_BFLOAT16_H_
#define TESTS_CPP_RUNTIME_HARNESS_BFLOAT16_H_

#include <cstdint>
#include <cstring>

namespace dnnl_test {

/*! \brief The upper half of a float: that number, or the next one to zero, in bfloat16. */
inline uint16_t UpperHalf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16);
}

inline float FromBFloat16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace dnnl_test

#endif  // TESTS_CPP_RUNTIME_HARNESS_BFLOAT16_H_
