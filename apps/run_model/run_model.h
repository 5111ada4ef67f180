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
 * \file apps/run_model/run_model.h
 * \brief What the two programs share: that for TVM with Relay, and that for TVM with Relax.
 */
#ifndef APPS_RUN_MODEL_RUN_MODEL_H_
#define APPS_RUN_MODEL_RUN_MODEL_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace run_model {

/*! \brief An input's name, and what stands after the first "=" of the argument. */
struct Input {
  std::string name, value;
};

/*! \brief How the program wants an input to be given. */
extern const char* const kInput;

/*!
 * \brief Run a model, write its outputs, and measure.
 * \param model The path of the library.
 * \param folder Where each output becomes a file.
 * \param inputs Files with the bytes of the tensors.
 */
void Run(const std::string& model, const std::string& folder, const std::vector<Input>& inputs);

/*! \brief Throw a std::runtime_error with a message. */
[[noreturn]] void Fail(const std::string& message);

/*! \brief Fail unless the inputs that are given are those of the model. */
void CheckNames(const std::vector<Input>& inputs, const std::vector<std::string>& names);

/*! \brief The bytes of a file. */
std::string ReadAll(const std::string& path);

/*! \brief Fill memory with the bytes of a file, which must have as many. */
void Read(const std::string& path, void* data, size_t bytes);

/*! \brief Write an output to its file; return the path. */
std::string WriteOutput(const std::string& folder, size_t index, const void* data, size_t bytes);

/*! \brief Tell how many outputs were written, and the median time of some runs. */
void Report(const std::string& folder, size_t outputs, const std::function<void()>& run);

}  // namespace run_model

#endif  // APPS_RUN_MODEL_RUN_MODEL_H_
