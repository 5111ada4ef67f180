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
 * \file apps/run_model/main.cc
 * \brief Runs a library that TVM exported, without Python: arguments, files and the clock.
 */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "run_model.h"

namespace run_model {

namespace {

constexpr int kRuns = 20;

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

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

Input Parse(const std::string& argument) {
  const size_t equals = argument.find('=');
  if (equals == std::string::npos) Fail(argument + " is not like " + kInput);
  return {argument.substr(0, equals), argument.substr(equals + 1)};
}

}  // namespace

void Fail(const std::string& message) { throw std::runtime_error(message); }

void CheckNames(const std::vector<Input>& inputs, const std::vector<std::string>& names) {
  std::vector<std::string> missing = names;
  for (const Input& input : inputs) {
    const auto same = std::find(missing.begin(), missing.end(), input.name);
    if (same == missing.end()) {
      const bool is_known = std::find(names.begin(), names.end(), input.name) != names.end();
      Fail(is_known ? input.name + " is given twice"
                    : "the model has no input " + input.name + ", but " + Joined(names));
    }
    missing.erase(same);
  }
  if (!missing.empty()) Fail("these inputs have no file: " + Joined(missing));
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file) Fail("cannot read " + path);
  return bytes;
}

void Read(const std::string& path, void* data, size_t bytes) {
  std::ifstream file(path, std::ios::binary);
  file.read(static_cast<char*>(data), static_cast<std::streamsize>(bytes));
  if (!file || file.peek() != std::ifstream::traits_type::eof()) {
    Fail(path + " is not there, or has not " + std::to_string(bytes) + " bytes");
  }
}

std::string WriteOutput(const std::string& folder, size_t index, const void* data, size_t bytes) {
  const std::string path = folder + "/output_" + std::to_string(index) + ".bin";
  std::ofstream file(path, std::ios::binary);
  file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  if (!file.flush()) Fail("cannot write " + path);
  return path;
}

void Report(const std::string& folder, size_t outputs, const std::function<void()>& run) {
  std::printf("%zu output%s in %s, %.3g ms a run\n", outputs, outputs == 1 ? "" : "s",
              folder.c_str(), Measure(run));
}

}  // namespace run_model

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s MODEL.so OUTPUT_FOLDER [%s]...\n", argv[0], run_model::kInput);
    return 2;
  }
  try {
    std::vector<run_model::Input> inputs;
    for (int i = 3; i < argc; ++i) inputs.push_back(run_model::Parse(argv[i]));
    // A name without a folder would be looked for where the system has libraries.
    run_model::Run(std::filesystem::absolute(argv[1]).string(), argv[2], inputs);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
