// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/harness/test.h
 * \brief A small test harness: cases that register themselves, and checks that print file:line.
 *
 * The prebuilt tree has no test library, and one of ours must be built with libtvm's own ABI.
 */
#ifndef TESTS_CPP_RUNTIME_HARNESS_TEST_H_
#define TESTS_CPP_RUNTIME_HARNESS_TEST_H_

#include <exception>
#include <iostream>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

namespace tvm_test {

/*! \brief One test case. */
struct TestCase {
  std::string name;
  void (*body)();
};

/*! \brief All test cases of the program. */
inline std::vector<TestCase>& Cases() {
  static std::vector<TestCase> cases;
  return cases;
}

/*! \brief How many checks of the running case have failed. */
inline int& Failures() {
  static int failures = 0;
  return failures;
}

/*! \brief Thrown by a failed ASSERT to leave the case. */
struct AssertionFailed {};

inline bool Register(const char* suite, const char* name, void (*body)()) {
  Cases().push_back({std::string(suite) + "." + name, body});
  return true;
}

/*! \brief Print a failure. */
inline void Fail(const char* file, int line, const std::string& what) {
  ++Failures();
  std::cerr << file << ":" << line << ": " << what << std::endl;
}

template <typename T, typename = void>
struct IsPrintable : std::false_type {};
template <typename T>
struct IsPrintable<T, std::void_t<decltype(std::declval<std::ostream&>() << std::declval<T>())>>
    : std::true_type {};

template <typename T>
std::string Show(const T& value) {
  std::ostringstream os;
  if constexpr (IsPrintable<const T&>::value) {
    os << value;
  } else {
    os << "<value>";
  }
  return os.str();
}

template <typename T>
std::string Show(const std::vector<T>& values) {
  std::string text = "[";
  for (const T& value : values) text += (text.size() > 1 ? ", " : "") + Show(value);
  return text + "]";
}

template <typename A, typename B>
bool CheckEqual(const A& actual, const B& expected, const char* what, const char* file, int line) {
  if (actual == expected) return true;
  Fail(file, line, std::string(what) + " is " + Show(actual) + ", expected " + Show(expected));
  return false;
}

/*! \brief Run a piece of code that must throw an error with all of some texts in its message. */
template <typename F>
bool CheckThrows(F&& code, const std::vector<std::string>& texts, const char* what,
                 const char* file, int line) {
  std::string message;
  try {
    code();
  } catch (const std::exception& error) {
    message = error.what();
    bool good = true;
    for (const std::string& text : texts) {
      if (message.find(text) == std::string::npos) {
        Fail(file, line, std::string(what) + ": the error does not say '" + text + "': " + message);
        good = false;
      }
    }
    return good;
  }
  Fail(file, line, std::string(what) + " did not throw");
  return false;
}

}  // namespace tvm_test

#define TEST(suite, name)                                             \
  static void suite##_##name();                                       \
  [[maybe_unused]] static const bool suite##_##name##_is_registered = \
      ::tvm_test::Register(#suite, #name, suite##_##name);            \
  static void suite##_##name()

#define EXPECT_TRUE(condition) \
  ((condition) ? true : (::tvm_test::Fail(__FILE__, __LINE__, #condition " is false"), false))
#define EXPECT_EQ(actual, expected) \
  ::tvm_test::CheckEqual(actual, expected, #actual, __FILE__, __LINE__)
/*! \brief EXPECT_THROWS(code, "text", ...): the message must hold every text. */
#define EXPECT_THROWS(code, ...) \
  ::tvm_test::CheckThrows([&]() { (void)(code); }, {__VA_ARGS__}, #code, __FILE__, __LINE__)
#define ASSERT_TRUE(condition) \
  if (!EXPECT_TRUE(condition)) throw ::tvm_test::AssertionFailed()
#define ASSERT_EQ(actual, expected) \
  if (!EXPECT_EQ(actual, expected)) throw ::tvm_test::AssertionFailed()

#endif  // TESTS_CPP_RUNTIME_HARNESS_TEST_H_
