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
 * \file src/relay/backend/contrib/dnnl/options.cc
 * \brief relay.ext.dnnl.options: what the PassContext says to partition_for_dnnl and the codegens.
 *
 * TVM's command line makes its --target-dnnl-* options of these fields, and hands over what follows
 * `dnnl` in --target as text. A field needs a default: newer releases read it from its description.
 */
#include "options.h"

#include <tvm/ir/attrs.h>
#include <tvm/ir/expr.h>
#include <tvm/ir/transform.h>
#include <tvm/node/repr_printer.h>

#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>

#include "../../../../runtime/contrib/dnnl/core/exec/threads.h"

namespace tvm {
namespace relay {
namespace contrib {
namespace dnnl {

/*! \brief A truth value that may be given as text. Errors call it by the name of its option. */
template <const char* name>
class Flag : public Bool {
 public:
  explicit Flag(bool value) : Bool(value) {}

  TVM_DEFINE_NOTNULLABLE_OBJECT_REF_METHODS(Flag, Bool, IntImmNode);
};

/*! \brief A text. Errors call it by the name of its option, and say what it must be. */
template <const char* name, const char* kind>
class Text : public String {
 public:
  explicit Text(const char* value) : String(value) {}

  TVM_DEFINE_NOTNULLABLE_OBJECT_REF_METHODS(Text, String, runtime::StringObj);
};

/*! \brief A number of threads that may be given as text. */
class Threads : public Integer {
 public:
  // 64 bits, as tvmc reads a default only in the way in which TVM prints these.
  explicit Threads(int64_t value) : Integer(IntImm(DataType::Int(64), value)) {}

  TVM_DEFINE_NOTNULLABLE_OBJECT_REF_METHODS(Threads, Integer, IntImmNode);
};

/*! \brief The end of an error: what was given as an option's value. */
template <typename Value>
std::string Given(const Value& value) {
  std::ostringstream text;
  text << ", but is ";
  if (value.template IsObjectRef<String>()) {
    text << '"' << value.template AsObjectRef<String>() << '"';
  } else if (value.template IsObjectRef<ObjectRef>()) {
    text << value.template AsObjectRef<ObjectRef>();
  } else if (value.type_code() == kDLInt) {
    // Unboxed, as v0.19 passes it.
    text << static_cast<int64_t>(value);
  } else {
    text << "of type " << runtime::ArgTypeCode2Str(value.type_code());
  }
  return text.str();
}

/*! \brief Read a number or a truth value: 0, 1, or another number for what is neither. */
template <typename Value>
int64_t TruthOf(const Value& value) {
  constexpr int64_t neither = -1;
  if (value.template IsObjectRef<String>()) {
    const std::string text = value.template AsObjectRef<String>();
    if (text == "1" || text == "true" || text == "True") return 1;
    return text == "0" || text == "false" || text == "False" ? 0 : neither;
  }
  // Releases differ in how they box numbers, so that only TVM's own conversion can tell.
  try {
    const Bool truth = runtime::PackedFuncValueConverter<Bool>::From(value);
    return truth.defined() ? truth->value : neither;
  } catch (const runtime::Error&) {
    return neither;
  }
}

/*! \brief Read a whole number; there is none in what is no number. */
template <typename Value>
std::optional<int64_t> NumberIn(const Value& value) {
  if (value.template IsObjectRef<String>()) {
    const std::string text = value.template AsObjectRef<String>();
    char* end = nullptr;
    const int64_t number = std::strtoll(text.c_str(), &end, 10);
    return !text.empty() && *end == '\0' ? std::optional<int64_t>(number) : std::nullopt;
  }
  try {
    const Integer number = runtime::PackedFuncValueConverter<Integer>::From(value);
    return number.defined() ? std::optional<int64_t>(number->value) : std::nullopt;
  } catch (const runtime::Error&) {
    return std::nullopt;
  }
}

}  // namespace dnnl
}  // namespace contrib
}  // namespace relay

namespace runtime {

template <const char* name>
struct PackedFuncValueConverter<relay::contrib::dnnl::Flag<name>> {
  template <typename Value>
  static relay::contrib::dnnl::Flag<name> From(const Value& value) {
    const int64_t truth = relay::contrib::dnnl::TruthOf(value);
    CHECK(truth == 0 || truth == 1)
        << "ValueError: " << name << " of relay.ext.dnnl.options "
        << "must be true or false" << relay::contrib::dnnl::Given(value);
    return relay::contrib::dnnl::Flag<name>(truth == 1);
  }
};

template <const char* name, const char* kind>
struct PackedFuncValueConverter<relay::contrib::dnnl::Text<name, kind>> {
  template <typename Value>
  static relay::contrib::dnnl::Text<name, kind> From(const Value& value) {
    CHECK(value.template IsObjectRef<String>() || value.type_code() == kTVMStr)
        << "ValueError: " << name << " of relay.ext.dnnl.options must be a string" << kind
        << relay::contrib::dnnl::Given(value);
    const String text = PackedFuncValueConverter<String>::From(value);
    return Downcast<relay::contrib::dnnl::Text<name, kind>>(text);
  }
};

template <>
struct PackedFuncValueConverter<relay::contrib::dnnl::Threads> {
  template <typename Value>
  static relay::contrib::dnnl::Threads From(const Value& value) {
    using runtime::contrib::dnnl_backend::kMaxThreads;
    const std::optional<int64_t> number = relay::contrib::dnnl::NumberIn(value);
    CHECK(number.has_value() && *number >= 0 && *number <= kMaxThreads)
        << "ValueError: num_threads of relay.ext.dnnl.options must be a number from 1 to "
        << kMaxThreads << ", or 0 to let the process decide"
        << (number ? ", but is " + std::to_string(*number) : relay::contrib::dnnl::Given(value));
    return relay::contrib::dnnl::Threads(*number);
  }
};

}  // namespace runtime

namespace relay {
namespace contrib {
namespace dnnl {

inline constexpr char kOptions[] = "relay.ext.dnnl.options";
inline constexpr char kPrune[] = "prune";
inline constexpr char kExclude[] = "exclude";
inline constexpr char kNames[] = " of names separated by commas";
inline constexpr char kPrecision[] = "precision";
inline constexpr char kWord[] = "";
inline constexpr char kBf16[] = "bf16";
inline constexpr char kKeepBiasOrder[] = "keep_bias_order";
inline constexpr char kExactNan[] = "exact_nan";
inline constexpr char kStrict[] = "strict";

/*! \brief The fields, with the names of partition_for_dnnl's arguments. */
struct DNNLOptionsNode : public AttrsNode<DNNLOptionsNode> {
  Flag<kPrune> prune{true};
  Text<kExclude, kNames> exclude{""};
  Text<kPrecision, kWord> precision{"float32"};
  Flag<kBf16> bf16{false};
  Flag<kKeepBiasOrder> keep_bias_order{true};
  Flag<kExactNan> exact_nan{false};
  Threads num_threads{0};
  Flag<kStrict> strict{false};

  TVM_DECLARE_ATTRS(DNNLOptionsNode, "ext.attrs.DNNLOptions") {
    TVM_ATTR_FIELD(prune)
        .describe("Whether partitions that are too small to be faster stay on TVM.")
        .set_default(Flag<kPrune>(true));
    TVM_ATTR_FIELD(exclude)
        .describe("Relay ops and composites that stay on TVM, such as nn.dense,nn.softmax.")
        .set_default(Text<kExclude, kNames>(""));
    TVM_ATTR_FIELD(precision)
        .describe("Data type of float32 convolutions and matmuls: auto, bfloat16, ...")
        .set_default(Text<kPrecision, kWord>("float32"));
    TVM_ATTR_FIELD(bf16)
        .describe("Deprecated: 1 is precision=bfloat16.")
        .set_default(Flag<kBf16>(false));
    TVM_ATTR_FIELD(keep_bias_order)
        .describe("Whether a bias is added where the module adds it, also after a residual.")
        .set_default(Flag<kKeepBiasOrder>(true));
    TVM_ATTR_FIELD(exact_nan)
        .describe("Whether relu, clip, max pools and the like propagate NaN; slower.")
        .set_default(Flag<kExactNan>(false));
    TVM_ATTR_FIELD(num_threads)
        .describe("Threads of one run of a partition; 0 lets the process decide.")
        .set_default(Threads(0));
    TVM_ATTR_FIELD(strict)
        .describe("Whether an op that cannot be rewritten or written is an error.")
        .set_default(Flag<kStrict>(false));
  }
};

class DNNLOptions : public Attrs {
 public:
  TVM_DEFINE_NOTNULLABLE_OBJECT_REF_METHODS(DNNLOptions, Attrs, DNNLOptionsNode);
};

TVM_REGISTER_NODE_TYPE(DNNLOptionsNode);

TVM_REGISTER_PASS_CONFIG_OPTION(kOptions, DNNLOptions);

int NumThreadsOf(const Function& function) {
  // Options of partition_for_dnnl take precedence over those of a whole compilation.
  const auto of_partition = function->GetAttr<Integer>(kNumThreadsAttr);
  if (of_partition) return static_cast<int>(of_partition.value()->value);
  const auto options = tvm::transform::PassContext::Current()->GetConfig<DNNLOptions>(kOptions);
  return options ? static_cast<int>(options.value()->num_threads->value) : 0;
}

}  // namespace dnnl
}  // namespace contrib
}  // namespace relay
}  // namespace tvm
