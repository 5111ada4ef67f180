// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/artifacts/words.h
 * \brief Other numbers, types and layouts than those of a graph.
 */
#ifndef TESTS_CPP_RUNTIME_ARTIFACTS_WORDS_H_
#define TESTS_CPP_RUNTIME_ARTIFACTS_WORDS_H_

#include <string>

#include "mutate.h"

namespace artifacts {

bool IsNumber(const std::string& text);
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
