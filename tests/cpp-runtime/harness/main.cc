// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/harness/main.cc
 * \brief Runs the test cases: all of them, or those whose name holds the first argument.
 */
#include "test.h"

namespace tvm_test {

/*! \brief Run one case. Returns whether it passed. */
static bool RunCase(const TestCase& test) {
  Failures() = 0;
  try {
    test.body();
  } catch (const AssertionFailed&) {
    // Already counted and printed.
  } catch (const std::exception& error) {
    Fail(test.name.c_str(), 0, std::string("unexpected error: ") + error.what());
  }
  std::cout << (Failures() == 0 ? "passed " : "FAILED ") << test.name << std::endl;
  return Failures() == 0;
}

}  // namespace tvm_test

int main(int argc, char** argv) {
  const std::string filter = argc > 1 ? argv[1] : "";
  int passed = 0;
  int failed = 0;
  for (const tvm_test::TestCase& test : tvm_test::Cases()) {
    if (test.name.find(filter) == std::string::npos) continue;
    ++(tvm_test::RunCase(test) ? passed : failed);
  }
  std::cout << passed << " passed, " << failed << " failed" << std::endl;
  if (passed + failed > 0) return failed == 0 ? 0 : 1;
  std::cerr << "no test case matches '" << filter << "'" << std::endl;
  return 5;  // As pytest's.
}
