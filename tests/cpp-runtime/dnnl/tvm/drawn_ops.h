// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/tvm/drawn_ops.h
 * \brief Valid nodes of each op of the table, as scripts/test/drawn_nodes.py draws them.
 */
#ifndef TESTS_CPP_RUNTIME_DNNL_TVM_DRAWN_OPS_H_
#define TESTS_CPP_RUNTIME_DNNL_TVM_DRAWN_OPS_H_

#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/runtime/contrib/dnnl/core/desc.h"
#include "src/runtime/contrib/json/json_attr.h"
#include "src/runtime/contrib/json/json_reader.h"
#include "tests/cpp-runtime/dnnl/core/valid_ops.h"

namespace dnnl_test {

/*! \brief Read types, `{"shape": [[2, 3], ...], "dtype": ["float32", ...]}`. */
inline Types ReadTypes(tvm::runtime::json::JSONReader* reader) {
  std::vector<Shape> shapes;
  std::vector<std::string> dtypes;
  std::string key;
  reader->BeginObject();
  while (reader->NextObjectItem(&key)) {
    key == "shape" ? reader->Read(&shapes) : reader->Read(&dtypes);
  }
  Types types;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const DLDataType dtype = tvm::runtime::json::detail::TypeFromText(dtypes.at(i));
    types.push_back({shapes[i], WithOneBool(dtype)});
  }
  return types;
}

/*! \brief Append the scalars in a value as text. */
inline void AppendTexts(const tvm::runtime::json::JSONAttr& value, Attr* texts) {
  using tvm::runtime::json::JSONAttr;
  for (const JSONAttr& item : value.items()) AppendTexts(item, texts);
  std::string text;
  if (!value.Read(&text) || value.kind() == JSONAttr::Kind::kList) return;
  texts->push_back(value.kind() == JSONAttr::Kind::kNumber ? value.Repr() : text);
}

/*! \brief Read a node. A nested list becomes a flat one, which the runtime reads as well. */
inline ValidOp ReadDrawnOp(const std::string& line) {
  tvm::runtime::json::JSONReader reader(line);
  ValidOp op;
  std::string key;
  reader.BeginObject();
  while (reader.NextObjectItem(&key)) {
    if (key == "name") {
      reader.Read(&op.name);
    } else if (key == "inputs") {
      op.inputs = ReadTypes(&reader);
    } else if (key == "constants") {
      reader.Read(&op.constants);
    } else if (key == "outputs") {
      op.outputs = ReadTypes(&reader);
    } else {
      tvm::runtime::json::JSONAttr attrs;
      reader.Read(&attrs);
      for (const auto& [name, value] : FlatAttrs(attrs.members())) {
        AppendTexts(value, &op.attrs[name]);
      }
    }
  }
  return op;
}

/*! \brief All of them; `./dev.py test` writes the file. */
inline const std::vector<ValidOp>& DrawnOps() {
  static const std::vector<ValidOp> ops = [] {
    std::ifstream file("build/drawn_nodes.jsonl");
    std::vector<ValidOp> read;
    for (std::string line; std::getline(file, line);) read.push_back(ReadDrawnOp(line));
    if (read.empty()) throw std::runtime_error("python -m scripts.test.drawn_nodes was not run");
    return read;
  }();
  return ops;
}

}  // namespace dnnl_test

#endif  // TESTS_CPP_RUNTIME_DNNL_TVM_DRAWN_OPS_H_
