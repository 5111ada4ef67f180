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
 * \file tests/cpp-runtime/artifacts/words.h
 * \brief Other numbers, types and layouts than those of a graph.
 */
#ifndef TESTS_CPP_RUNTIME_ARTIFACTS_WORDS_H_
#define TESTS_CPP_RUNTIME_ARTIFACTS_WORDS_H_

#include <string>

#include "mutate.h"

namespace artifacts {

bool IsDType(const std::string& text);
std::string AnyDType(Random* random);

/*! \brief A text that a number should not be: huge, negative, a fraction, none. */
std::string AnyExtreme(Random* random);

/*! \brief A JSON value that most places do not expect. */
std::string AnyJson(Random* random);

/*! \brief Another number, most often one near by. */
std::string OtherNumber(const std::string& text, Random* random);

/*! \brief Change a number, type or layout to another; false for any other text. */
bool OtherWord(Random* random, std::string* text);

}  // namespace artifacts

#endif  // TESTS_CPP_RUNTIME_ARTIFACTS_WORDS_H_
