// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/artifacts/trial.h
 * \brief Loads and runs what may be damaged, and looks at what that does.
 */
#ifndef TESTS_CPP_RUNTIME_ARTIFACTS_TRIAL_H_
#define TESTS_CPP_RUNTIME_ARTIFACTS_TRIAL_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "artifact.h"

namespace artifacts {

/*! \brief What is damaged. */
enum class Part {
  kGraph,     /*!< the values of the JSON graph, which stays JSON */
  kText,      /*!< the bytes of its text */
  kModule,    /*!< the file of the module: symbol, graph, names of the constants */
  kConstants, /*!< the file of the const loader, read from a stream */
  kLibrary,   /*!< the same, read from a library that is loaded */
  kCSource    /*!< the constants of a function of C source */
};
constexpr int kNumParts = 6;
const char* NameOf(Part part);

/*! \brief How far an artifact came. */
enum class Outcome {
  kNotLoaded,      /*!< an error when the module was made */
  kNotInitialised, /*!< an error when it got its constants */
  kNotRun,         /*!< an error of the call */
  kRun,            /*!< no error */
  kTooLarge        /*!< its tensors, or its work, are more than what is tried here */
};
constexpr int kNumOutcomes = 5;
const char* NameOf(Outcome outcome);

/*! \brief A graph of the corpus. */
struct Artifact {
  std::string name;
  Json graph;
  Signature signature;
};

/*! \brief An artifact, damaged or not. */
struct Trial {
  const Artifact* artifact{nullptr};
  Part part{Part::kGraph};
  /*! \brief The text of the graph, or the bytes of the file. */
  std::string bytes;
  Fill constants{Fill::kOrdinary};
  Fill inputs{Fill::kOrdinary};
  /*! \brief Of the values of the tensors. */
  uint64_t seed{0};
};

struct Result {
  Outcome outcome{Outcome::kNotLoaded};
  /*! \brief What an error said. */
  std::string error;
  /*! \brief What an artifact must not do, or "". */
  std::string failure;
  /*! \brief The most bytes that were allocated at once until the end of the first run. */
  size_t peak{0};
  /*! \brief Bytes of the inputs, constants and outputs of all shapes that it was called with. */
  double tensor_bytes{0};
};

/*! \brief The bytes of an artifact's part as they are when nothing is damaged. */
std::string BytesOf(const Artifact& artifact, Part part);

/*!
 * \brief Load, initialise and run. Errors are an outcome; a signal is not caught.
 * \param template_library A library with room for what is read from a library.
 */
Result Run(const Trial& trial, const std::string& template_library);

}  // namespace artifacts

#endif  // TESTS_CPP_RUNTIME_ARTIFACTS_TRIAL_H_
