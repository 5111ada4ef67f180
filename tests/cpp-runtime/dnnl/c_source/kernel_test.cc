// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/c_source/kernel_test.cc
 * \brief The C functions that generated C source calls, and the cache after them.
 */
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "src/runtime/contrib/dnnl/c_source/attr_text.h"
#include "src/runtime/contrib/dnnl/c_source/kernel_cache.h"
#include "src/runtime/contrib/dnnl/dnnl_kernel.h"
#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::kernel {

using tvm::runtime::contrib::dnnl_backend::FromAttrText;
using tvm::runtime::contrib::dnnl_backend::KernelCache;
using tvm::runtime::contrib::dnnl_backend::OpKernel;
using tvm::runtime::contrib::dnnl_backend::ToAttrText;
using Rows = tvm::runtime::json::JSONAttr::Rows;

/*! \brief Whether TVM's last error has all of these texts. */
bool LastErrorHas(const std::vector<std::string>& texts) {
  const std::string error = TVMGetLastError();
  for (const std::string& text : texts) {
    if (error.find(text) == std::string::npos) {
      std::cerr << "TVM's last error does not say '" << text << "': " << error << std::endl;
      return false;
    }
  }
  return true;
}

/*! \brief relu of a vector. */
struct Relu {
  explicit Relu(int64_t size) : values(size, -1.f), result(size, 5.f) {
    values.back() = 2.f;
    tensors[0] = tensors[1] = {"float32", 1, {size}, 0};
  }
  bool IsRight() const {
    return std::all_of(result.begin(), result.end() - 1, [](float v) { return v == 0.f; }) &&
           result.back() == 2.f;
  }
  TVMDNNLTensor tensors[2];
  TVMDNNLOp op{"test", 0, "nn.relu", nullptr, 0, tensors, 1, 1, nullptr};
  std::vector<float> values, result;
  void* data[2] = {values.data(), result.data()};
};

/*! \brief A dense layer with constant weights, all of one value; its input is all ones. */
struct Dense {
  static constexpr int64_t kIn = 24, kOut = 40;
  explicit Dense(float value) : src(2 * kIn, 1.f), weights(kOut * kIn, value), dst(2 * kOut, 0.f) {
    shape[0] = kOut;
    shape[1] = kIn;
    constant.data = weights.data();
    constant.device = {kDLCPU, 0};
    constant.ndim = 2;
    constant.dtype = {kDLFloat, 32, 1};
    constant.shape = shape;
  }
  bool IsRight(float value) const {
    return std::all_of(dst.begin(), dst.end(),
                       [&](float v) { return std::abs(v - kIn * value) < 1e-3f; });
  }
  TVMDNNLTensor tensors[3] = {
      {"float32", 2, {2, kIn}, 0}, {"float32", 2, {kOut, kIn}, 1}, {"float32", 2, {2, kOut}, 0}};
  TVMDNNLOp op{"test", 7, "nn.dense", nullptr, 0, tensors, 2, 1, nullptr};
  int64_t shape[2];
  DLTensor constant{};
  DLTensor* constants[1] = {&constant};
  std::vector<float> src, weights, dst;
  void* data[3] = {src.data(), weights.data(), dst.data()};
};

TEST(DNNLAttrText, ReadsBackWhatItWrites) {
  const std::vector<Rows> values = {
      {{"NCHW"}},
      {{"1", "1"}},
      {{}},
      {{"", ""}},
      {{"a,b", "c;d\\"}},
      {{"0", "0"}, {"1", "1"}},
      {{}, {"1"}, {}},
      {{""}, {"\\e"}},
      {{"1"}, {}},
      {{"", "x"}, {"y", ""}},
  };
  for (const Rows& rows : values) EXPECT_TRUE(FromAttrText(ToAttrText(rows)) == rows);
  EXPECT_EQ(ToAttrText({{"1", "1"}}), "1,1");
  EXPECT_EQ(ToAttrText({{"0", "0"}, {"1", "1"}}), "0,0;1,1;");
  // One row is the same whether it was nested or not, as it is in JSON.
  EXPECT_TRUE(FromAttrText("1,1;") == FromAttrText("1,1"));
}

TEST(DNNLKernel, RunsAndIsPreparedOnce) {
  Relu relu(9);
  ASSERT_EQ(TVMDNNLRunOp(&relu.op, relu.data), 0);
  EXPECT_TRUE(relu.IsRight());
  void* kernel = relu.op.kernel;
  EXPECT_TRUE(kernel != nullptr);
  ASSERT_EQ(TVMDNNLRunOp(&relu.op, relu.data), 0);
  EXPECT_EQ(relu.op.kernel, kernel);
  EXPECT_EQ(TVMDNNLReleaseOps(&relu.op, 1), 0);
  EXPECT_TRUE(relu.op.kernel == nullptr);
  EXPECT_EQ(TVMDNNLReleaseOps(&relu.op, 1), 0);
}

TEST(DNNLKernel, ErrorsNameTheOp) {
  Relu relu(3);
  void* no_result[] = {relu.data[0], nullptr};
  EXPECT_EQ(TVMDNNLRunOp(&relu.op, no_result), -1);
  EXPECT_TRUE(LastErrorHas({"test, node 0 nn.relu", "output 0 is null"}));
  TVMDNNLReleaseOps(&relu.op, 1);

  TVMDNNLOp unknown = relu.op;
  unknown.name = "nn.unheard_of";
  EXPECT_EQ(TVMDNNLRunOp(&unknown, relu.data), -1);
  EXPECT_TRUE(LastErrorHas({"test, node 0 nn.unheard_of"}));
  EXPECT_TRUE(unknown.kernel == nullptr);

  TVMDNNLOp two_inputs = relu.op;
  TVMDNNLTensor tensors[3] = {relu.tensors[0], relu.tensors[0], relu.tensors[1]};
  two_inputs.tensors = tensors;
  two_inputs.num_inputs = 2;
  void* data[] = {relu.data[0], relu.data[0], relu.data[1]};
  EXPECT_EQ(TVMDNNLRunOp(&two_inputs, data), -1);
  EXPECT_TRUE(LastErrorHas({"test, node 0 nn.relu", "2 inputs"}));

  Relu bad(3);
  bad.tensors[1].shape[0] = 4;
  EXPECT_EQ(TVMDNNLRunOnce(&bad.op, bad.data), -1);
  EXPECT_TRUE(LastErrorHas({"test, node 0 nn.relu", "[4]", "[3]"}));
  bad.tensors[0].ndim = 13;
  EXPECT_EQ(TVMDNNLRunOnce(&bad.op, bad.data), -1);
  EXPECT_TRUE(LastErrorHas({"rank 13"}));
  bad.tensors[0] = {"complex64", 1, {3}, 0};
  EXPECT_EQ(TVMDNNLRunOnce(&bad.op, bad.data), -1);
}

TEST(DNNLKernel, PacksConstantsOnce) {
  Dense dense(0.5f);
  ASSERT_EQ(TVMDNNLPrepareOps(&dense.op, 1, dense.constants), 0);
  void* kernel = dense.op.kernel;
  ASSERT_EQ(TVMDNNLRunOp(&dense.op, dense.data), 0);
  EXPECT_TRUE(dense.IsRight(0.5f));
  ASSERT_EQ(TVMDNNLPrepareOps(&dense.op, 1, dense.constants), 0);
  EXPECT_EQ(dense.op.kernel, kernel);

  // Another address is refused: the values there may be others.
  std::vector<float> elsewhere(dense.weights.size(), 3.f);
  void* data[] = {dense.data[0], elsewhere.data(), dense.data[2]};
  EXPECT_EQ(TVMDNNLRunOp(&dense.op, data), -1);
  EXPECT_TRUE(LastErrorHas({"test, node 7 nn.dense", "input 1 is constant"}));

  // After a release there may be other values, at the same address as well.
  ASSERT_EQ(TVMDNNLReleaseOps(&dense.op, 1), 0);
  std::fill(dense.weights.begin(), dense.weights.end(), 2.f);
  ASSERT_EQ(TVMDNNLRunOp(&dense.op, dense.data), 0);
  EXPECT_TRUE(dense.IsRight(2.f));
  TVMDNNLReleaseOps(&dense.op, 1);
}

TEST(DNNLKernel, TakesConstantsAtAnyAddress) {
  Dense dense(0.f);
  std::vector<float> weights(dense.weights.size() + 1, 1.5f);
  for (int shift : {0, 1}) {
    void* data[] = {dense.data[0], weights.data() + shift, dense.data[2]};
    ASSERT_EQ(TVMDNNLRunOp(&dense.op, data), 0);
    EXPECT_TRUE(dense.IsRight(1.5f));
    TVMDNNLReleaseOps(&dense.op, 1);
  }
}

TEST(DNNLKernel, PrepareIsAllOrNothing) {
  Dense dense(1.f);
  TVMDNNLOp ops[2] = {dense.op, dense.op};
  ops[1].name = "nn.unheard_of";
  EXPECT_EQ(TVMDNNLPrepareOps(ops, 2, dense.constants), -1);
  EXPECT_TRUE(LastErrorHas({"nn.unheard_of"}));
  EXPECT_TRUE(ops[0].kernel == nullptr && ops[1].kernel == nullptr);

  dense.shape[0] = 1;
  EXPECT_EQ(TVMDNNLPrepareOps(ops, 1, dense.constants), -1);
  EXPECT_TRUE(LastErrorHas({"test, node 7 nn.dense", "constant of input 1", "type or shape"}));
  dense.constants[0] = nullptr;
  EXPECT_EQ(TVMDNNLPrepareOps(ops, 1, dense.constants), -1);
  EXPECT_TRUE(LastErrorHas({"constant of input 1 is missing"}));
}

TEST(DNNLKernel, ManyThreadsRunOneOp) {
  Dense dense(0.25f);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&]() {
      for (int j = 0; j < 50; ++j) {
        std::vector<float> dst(dense.dst.size(), -1.f);
        void* data[] = {dense.data[0], dense.data[1], dst.data()};
        if (TVMDNNLRunOp(&dense.op, data) != 0) ++wrong;
        for (float v : dst) wrong += std::abs(v - Dense::kIn * 0.25f) > 1e-3f;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  TVMDNNLReleaseOps(&dense.op, 1);
}

TEST(DNNLKernelCache, KeepsThoseUsedLast) {
  KernelCache cache(3);
  std::vector<std::unique_ptr<Relu>> ops;
  for (int i = 1; i <= 5; ++i) ops.push_back(std::make_unique<Relu>(i));
  const auto first = cache.Get(ops[0]->op);
  EXPECT_TRUE(cache.Get(ops[0]->op) == first);
  cache.Get(ops[1]->op);
  cache.Get(ops[2]->op);
  cache.Get(ops[0]->op);
  cache.Get(ops[3]->op);  // drops 1
  EXPECT_EQ(cache.size(), 3u);
  EXPECT_TRUE(cache.Get(ops[0]->op) == first);
  cache.Get(ops[4]->op);
  cache.Get(ops[1]->op);
  cache.Get(ops[2]->op);  // drops 0
  EXPECT_EQ(cache.size(), 3u);
  // It lives on with who has it, and another one is built for who comes now.
  first->Run(ops[0]->op, ops[0]->data);
  EXPECT_TRUE(ops[0]->IsRight());
  EXPECT_TRUE(cache.Get(ops[0]->op) != first);
}

TEST(DNNLKernelCache, TellsOpsApart) {
  KernelCache cache(10);
  Relu a(4), b(4), c(4);
  b.tensors[0] = b.tensors[1] = {"float32", 2, {2, 2}, 0};
  const TVMDNNLAttr attr = {"axis", "1"};
  c.op.attrs = &attr;
  c.op.num_attrs = 1;
  const auto kernel = cache.Get(a.op);
  EXPECT_TRUE(cache.Get(b.op) != kernel);
  EXPECT_TRUE(cache.Get(c.op) != kernel);
  // Where an op is does not matter for what it is.
  a.op.symbol = "elsewhere";
  a.op.id = 9;
  EXPECT_TRUE(cache.Get(a.op) == kernel);
}

TEST(DNNLKernelCache, DoesNotKeepFailures) {
  KernelCache cache(10);
  Relu relu(4);
  relu.op.name = "nn.unheard_of";
  EXPECT_THROWS(cache.Get(relu.op), "nn.unheard_of");
  EXPECT_EQ(cache.size(), 0u);
}

TEST(DNNLKernelCache, BuildsOnceForManyThreads) {
  KernelCache cache(4);
  std::vector<std::shared_ptr<OpKernel>> kernels(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kernels.size(); ++i) {
    threads.emplace_back([&, i]() {
      Relu relu(100);
      kernels[i] = cache.Get(relu.op);
      kernels[i]->Run(relu.op, relu.data);
      if (!relu.IsRight()) kernels[i] = nullptr;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& kernel : kernels) EXPECT_TRUE(kernel != nullptr && kernel == kernels[0]);
}

TEST(DNNLKernelCache, StaysSmallUnderManyShapes) {
  for (int64_t size = 1; size <= 400; ++size) {
    Relu relu(size);
    ASSERT_EQ(TVMDNNLRunOnce(&relu.op, relu.data), 0);
    EXPECT_TRUE(relu.IsRight());
  }
  EXPECT_TRUE(KernelCache::Global()->size() <= 128);
}

}  // namespace dnnl_test::kernel
