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
 * \brief relay.ext.dnnl.options: what partition_for_dnnl reads from the PassContext.
 *
 * TVM's command line makes its --target-dnnl-* options of these fields, and hands over what follows
 * `dnnl` in --target as text. A field needs a default: newer releases read it from its description.
 */
#include <tvm/ir/attrs.h>
#include <tvm/ir/expr.h>
#include <tvm/ir/transform.h>

#include <string>

namespace tvm {
namespace relay {
namespace contrib {
namespace dnnl {

/*! \brief A truth value that may be given as text. */
class Flag : public Bool {
 public:
  explicit Flag(bool value) : Bool(value) {}

  TVM_DEFINE_NOTNULLABLE_OBJECT_REF_METHODS(Flag, Bool, IntImmNode);
};

}  // namespace dnnl
}  // namespace contrib
}  // namespace relay

namespace runtime {

template <>
struct PackedFuncValueConverter<relay::contrib::dnnl::Flag> {
  template <typename Value>
  static relay::contrib::dnnl::Flag From(const Value& value) {
    if (!value.template IsObjectRef<String>()) {
      return relay::contrib::dnnl::Flag(
          static_cast<bool>(PackedFuncValueConverter<Bool>::From(value)));
    }
    const std::string text = value.template AsObjectRef<String>();
    const bool on = text == "1" || text == "true" || text == "True";
    CHECK(on || text == "0" || text == "false" || text == "False")
        << "ValueError: an option of relay.ext.dnnl.options must be true or false, but is \""
        << text << "\"";
    return relay::contrib::dnnl::Flag(on);
  }
};

}  // namespace runtime

namespace relay {
namespace contrib {
namespace dnnl {

/*! \brief The fields, with the names of partition_for_dnnl's arguments. */
struct DNNLOptionsNode : public AttrsNode<DNNLOptionsNode> {
  Flag prune{true};
  String exclude;
  Flag bf16{false};
  Flag keep_bias_order{true};

  TVM_DECLARE_ATTRS(DNNLOptionsNode, "ext.attrs.DNNLOptions") {
    TVM_ATTR_FIELD(prune)
        .describe("Whether partitions that are too small to win go back to TVM.")
        .set_default(Flag(true));
    TVM_ATTR_FIELD(exclude)
        .describe("Relay ops and composites that stay on TVM, such as nn.dense,nn.softmax.")
        .set_default(String(""));
    TVM_ATTR_FIELD(bf16)
        .describe("Whether to compute in bfloat16 what ToMixedPrecision gives to it.")
        .set_default(Flag(false));
    TVM_ATTR_FIELD(keep_bias_order)
        .describe("Whether a bias is added where the module adds it, also behind a residual.")
        .set_default(Flag(true));
  }
};

class DNNLOptions : public Attrs {
 public:
  TVM_DEFINE_NOTNULLABLE_OBJECT_REF_METHODS(DNNLOptions, Attrs, DNNLOptionsNode);
};

TVM_REGISTER_NODE_TYPE(DNNLOptionsNode);

TVM_REGISTER_PASS_CONFIG_OPTION("relay.ext.dnnl.options", DNNLOptions);

}  // namespace dnnl
}  // namespace contrib
}  // namespace relay
}  // namespace tvm
