// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/tvm/const_loader_test.cc
 * \brief The const loader of loaded modules, read from memory that is no library's.
 */
#include <dmlc/memory_io.h>
#include <tvm/runtime/container/array.h>
#include <tvm/runtime/container/map.h>
#include <tvm/runtime/container/string.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/ndarray.h>
#include <tvm/runtime/registry.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/cpp-runtime/harness/arrays.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::const_loader {

using namespace tvm::runtime;  // NOLINT(build/namespaces)
using tvm_test::Floats;
using tvm_test::Values;

/*! \brief Constants a and b; f needs both, b first, g needs a. */
std::string Binary() {
  std::string text;
  dmlc::MemoryStringStream stream(&text);
  dmlc::Stream* out = &stream;
  out->Write(std::vector<std::string>{"a", "b"});
  out->Write(uint64_t{2});
  Floats({1, 2}).Save(out);
  Floats({3, 4, 5}).Save(out);
  out->Write(std::vector<std::string>{"f", "g"});
  out->Write(uint64_t{2});
  out->Write(std::vector<std::string>{"b", "a"});
  out->Write(std::vector<std::string>{"a"});
  return text;
}

/*! \brief A stream that cannot go back. */
class OneWayStream : public dmlc::Stream {
 public:
  explicit OneWayStream(std::string* text) : stream_(text) {}
  size_t Read(void* data, size_t size) override { return stream_.Read(data, size); }
  // Some releases of dmlc-core return the size, others nothing.
  auto Write(const void* data, size_t size)
      -> decltype(std::declval<dmlc::Stream&>().Write(data, size)) override {
    return stream_.Write(data, size);
  }

 private:
  dmlc::MemoryStringStream stream_;
};

Module Load(dmlc::Stream* stream) {
  const PackedFunc* load = Registry::Get("runtime.module.loadbinary_const_loader");
  return (*load)(static_cast<void*>(stream));
}

Module Load(std::string text) {
  dmlc::MemoryStringStream stream(&text);
  return Load(&stream);
}

/*! \brief A module with functions f and g, which are ready once they were given their constants. */
class Backend : public ModuleNode {
 public:
  const char* type_key() const final { return "test_backend"; }

  PackedFunc GetFunction(const String& name, const ObjectPtr<Object>& self) final {
    const std::string text = name;
    if (text == "f" || text == "g") {
      return PackedFunc([self](tvm::runtime::TVMArgs, tvm::runtime::TVMRetValue*) {});
    }
    if (text.rfind("__init_", 0) != 0) return nullptr;
    return TypedPackedFunc<int(Array<NDArray>)>([self, this, text](Array<NDArray> constants) {
      if (fail) LOG(FATAL) << "this time it fails";
      got.push_back(text.substr(7));
      for (const NDArray& constant : constants) got_values.push_back(Values(constant));
      return 0;
    });
  }

  bool fail{false};
  std::vector<std::string> got;
  std::vector<std::vector<float>> got_values;
};

void CheckArrays(Module loader) {
  Map<String, ObjectRef> arrays = loader.GetFunction("get_const_var_ndarray")();
  EXPECT_EQ(arrays.size(), 2U);
  EXPECT_EQ(Values(tvm::runtime::Downcast<NDArray>(arrays["a"])), (std::vector<float>{1, 2}));
  EXPECT_EQ(Values(tvm::runtime::Downcast<NDArray>(arrays["b"])), (std::vector<float>{3, 4, 5}));
}

TEST(DNNLConstLoader, Loads) {
  Module loader = Load(Binary());
  EXPECT_EQ(std::string(loader->type_key()), "const_loader");
  CheckArrays(loader);
}

TEST(DNNLConstLoader, LoadsFromAStreamThatCannotGoBack) {
  std::string text = Binary();
  OneWayStream stream(&text);
  CheckArrays(Load(&stream));
}

TEST(DNNLConstLoader, ReadsNoFurtherThanItsPart) {
  std::string text = Binary() + "more";
  dmlc::MemoryStringStream stream(&text);
  Load(&stream);
  EXPECT_EQ(stream.Tell(), text.size() - 4);
}

TEST(DNNLConstLoader, SavesWhatItLoads) {
  Module loader = Load(Binary());
  std::string text;
  dmlc::MemoryStringStream stream(&text);
  loader->SaveToBinary(&stream);
  // The order of the functions is not defined.
  EXPECT_EQ(text.size(), Binary().size());
  CheckArrays(Load(text));
}

TEST(DNNLConstLoader, InitialisesAFunctionBeforeItsFirstUse) {
  Module loader = Load(Binary());
  auto backend = make_object<Backend>();
  loader->Import(Module(backend));
  EXPECT_TRUE(loader.GetFunction("no such function") == nullptr);
  EXPECT_EQ(backend->got, (std::vector<std::string>{}));
  EXPECT_TRUE(loader.GetFunction("f") != nullptr);
  EXPECT_TRUE(loader.GetFunction("f") != nullptr);
  EXPECT_EQ(backend->got, (std::vector<std::string>{"f"}));
  EXPECT_TRUE(backend->got_values == (std::vector<std::vector<float>>{{3, 4, 5}, {1, 2}}));
  EXPECT_TRUE(loader.GetFunction("g") != nullptr);
  EXPECT_EQ(backend->got, (std::vector<std::string>{"f", "g"}));
}

TEST(DNNLConstLoader, TriesAgainAfterAFailure) {
  Module loader = Load(Binary());
  auto backend = make_object<Backend>();
  loader->Import(Module(backend));
  backend->fail = true;
  EXPECT_THROWS(loader.GetFunction("g"), "this time it fails");
  backend->fail = false;
  EXPECT_TRUE(loader.GetFunction("g") != nullptr);
  EXPECT_EQ(backend->got, (std::vector<std::string>{"g"}));
}

TEST(DNNLConstLoader, SaysWhatIsDamaged) {
  const std::string good = Binary();
  for (size_t size = 0; size < good.size(); size += 3) {
    EXPECT_THROWS(Load(good.substr(0, size)), "");
  }
  EXPECT_THROWS(Load(good.substr(0, 4)), "the names cannot be read", "cut off or damaged");
  std::string twice = good;
  twice[twice.find('b')] = 'a';
  EXPECT_THROWS(Load(twice), "twice");
  std::string other = good;
  other[other.rfind('a')] = 'x';
  EXPECT_THROWS(Load(other), "constant 'x' of 'g'");
}

}  // namespace dnnl_test::const_loader
