// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/c_source/constants_test.cc
 * \brief The constants of C source: what a damaged library holds is an error that says so.
 */
#include <dmlc/memory_io.h>
#include <tvm/runtime/container/array.h>
#include <tvm/runtime/container/string.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/registry.h>

#include <string>

#include "tests/cpp-runtime/harness/arrays.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::constants {

using namespace tvm::runtime;  // NOLINT(build/namespaces)
using tvm_test::Floats;
using tvm_test::Values;

/*! \brief "sym" with the constants [1, 2] and [3, 4, 5]. */
std::string Binary() {
  const Array<NDArray> values = {Floats({1, 2}), Floats({3, 4, 5})};
  Module module = (*Registry::Get("runtime.DNNLConstantsCreate"))(String("sym"), values);
  std::string text;
  dmlc::MemoryStringStream stream(&text);
  module->SaveToBinary(&stream);
  return text;
}

/*! \brief Load as TVM does from a library. */
Module Load(std::string text) {
  dmlc::MemoryFixedSizeStream stream(&text[0], text.size());
  return (*Registry::Get("runtime.module.loadbinary_dnnl_constants"))(
      static_cast<void*>(static_cast<dmlc::Stream*>(&stream)));
}

constexpr const char* kDamaged = "The constants of a library are cut off or damaged";

TEST(DNNLConstants, AreLoaded) {
  NDArray second = Load(Binary()).GetFunction("get_constant_sym")(1);
  EXPECT_EQ(Values(second), (std::vector<float>{3, 4, 5}));
}

TEST(DNNLConstants, SayThatTheyAreCutOff) {
  const std::string good = Binary();
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROWS(Load(good.substr(0, size)), kDamaged);
  }
}

/*! \brief A length, rank, type or shape that is not true is found before memory is taken for it. */
TEST(DNNLConstants, AllocateNothingThatIsNotThere) {
  const std::string good = Binary();
  const size_t name = 8, count = name + 3, array = count + 8;
  // Magic number, reserved, device, rank, type, one extent, the number of bytes.
  const size_t rank = array + 24, type = rank + 4, extent = type + 4, bytes = extent + 8;
  struct Damage {
    size_t at;
    std::string bytes;
  };
  for (const Damage& damage : {
           Damage{0, std::string(7, '\x7f')},                 // the length of the name
           Damage{count, std::string(7, '\x7f')},             // the number of arrays
           Damage{array, std::string(8, '\0')},               // the magic number
           Damage{rank, std::string("\xff\xff\xff\xff", 4)},  // -1
           Damage{rank, std::string("\xff\xff\xff\x0f", 4)},
           Damage{type + 2, std::string("\xff\xff", 2)},  // lanes
           Damage{extent, std::string("\xff\xff\xff\x7f", 4)},
           Damage{extent, std::string(8, '\xff')},
           Damage{bytes, std::string("\xff\xff\xff\x7f", 4)},
           // Both the same, and none of it there: 8 GB.
           Damage{extent, std::string("\0\0\0\x80\0\0\0\0\0\0\0\0\x02\0\0\0", 16)},
       }) {
    std::string damaged = good;
    damaged.replace(damage.at, damage.bytes.size(), damage.bytes);
    if (!EXPECT_THROWS(Load(damaged), kDamaged)) std::cerr << "at " << damage.at << std::endl;
  }
}

}  // namespace dnnl_test::constants
