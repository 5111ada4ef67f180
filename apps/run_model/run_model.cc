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
 * \file apps/run_model/run_model.cc
 * \brief Loads a library that export_library wrote for the graph executor, and runs it. No Python.
 */
#include <dlpack/dlpack.h>
#include <tvm/runtime/container/map.h>
#include <tvm/runtime/container/shape_tuple.h>
#include <tvm/runtime/container/string.h>
#include <tvm/runtime/data_type.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/ndarray.h>
#include <tvm/runtime/packed_func.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using tvm::runtime::Downcast;
using tvm::runtime::Map;
using tvm::runtime::Module;
using tvm::runtime::NDArray;
using tvm::runtime::ObjectRef;
using tvm::runtime::ShapeTuple;
using tvm::runtime::String;

constexpr DLDevice kCPU{kDLCPU, 0};
constexpr int kRuns = 20;

size_t Bytes(const NDArray& array) {
  const ShapeTuple shape = array.Shape();
  const size_t bytes = (array->dtype.bits * array->dtype.lanes + 7) / 8;
  return std::accumulate(shape.begin(), shape.end(), bytes, std::multiplies<size_t>());
}

/*! \brief Fill an array with the bytes of a file, which must have as many. */
void Read(const std::string& path, const NDArray& array) {
  std::vector<char> bytes(Bytes(array));
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file || file.peek() != std::ifstream::traits_type::eof()) {
    throw std::runtime_error(path + " is not there, or has not " + std::to_string(bytes.size()) +
                             " bytes");
  }
  NDArray(array).CopyFromBytes(bytes.data(), bytes.size());
}

void Write(const NDArray& array, const std::string& path) {
  std::vector<char> bytes(Bytes(array));
  array.CopyToBytes(bytes.data(), bytes.size());
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

/*! \brief The median of the times of some runs, in milliseconds. */
double Measure(const std::function<void()>& run) {
  std::vector<double> times;
  for (int i = 0; i < kRuns; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    times.push_back(time.count());
  }
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

void Run(const std::string& model, const std::string& folder,
         const std::vector<std::string>& inputs) {
  // A name without a folder is looked for where the system has libraries.
  const Module library = Module::LoadFromFile(std::filesystem::absolute(model).string());
  const Module executor = Module(library).GetFunction("default")(kCPU);
  const auto function = [&executor](const char* name) {
    return Module(executor).GetFunction(name);
  };

  const Map<String, ObjectRef> info = function("get_input_info")();
  const auto shapes = Downcast<Map<String, ShapeTuple>>(info["shape"]);
  const auto types = Downcast<Map<String, String>>(info["dtype"]);
  const auto set_input = function("set_input");
  for (const std::string& input : inputs) {
    const size_t equals = input.find('=');
    const String name = input.substr(0, equals);
    if (equals == std::string::npos || shapes.count(name) == 0) {
      throw std::runtime_error(input + " is not like NAME=FILE with the name of an input");
    }
    const DLDataType type = tvm::runtime::String2DLDataType(types[name]);
    const NDArray array = NDArray::Empty(shapes[name], type, kCPU);
    Read(input.substr(equals + 1), array);
    set_input(name, array);
  }

  // The first run makes the plans.
  const auto run = function("run");
  run();
  const int outputs = function("get_num_outputs")();
  const auto get_output = function("get_output");
  for (int i = 0; i < outputs; ++i) {
    const NDArray output = get_output(i);
    Write(output, folder + "/output_" + std::to_string(i) + ".bin");
  }
  std::printf("%d output%s in %s, %.3g ms a run\n", outputs, outputs == 1 ? "" : "s",
              folder.c_str(), Measure([&run] { run(); }));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s MODEL.so OUTPUT_FOLDER [NAME=FILE]...\n", argv[0]);
    return 2;
  }
  try {
    Run(argv[1], argv[2], {argv + 3, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
