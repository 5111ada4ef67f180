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
 * \file tests/cpp-runtime/dnnl/core/fork_test.cc
 * \brief Threads that cannot be started.
 */
#include "src/runtime/contrib/dnnl/core/exec/fork.h"

#ifdef __GLIBC__
#include <pthread.h>
#endif

#include "tests/cpp-runtime/harness/test.h"

namespace {

using namespace tvm::runtime::contrib::dnnl_backend;  // NOLINT(build/namespaces)

#ifdef __GLIBC__
TEST(DNNLThread, ThatCannotBeStartedIsAnErrorThatSaysWhy) {
  pthread_attr_t before, huge;
  pthread_getattr_default_np(&before);
  pthread_attr_init(&huge);
  // More than there are addresses.
  pthread_attr_setstacksize(&huge, size_t{1} << 47);
  pthread_setattr_default_np(&huge);
  EXPECT_THROWS(StartThread([]() {}), "a thread for oneDNN cannot be started", "ulimit -u");
  pthread_setattr_default_np(&before);
  pthread_attr_destroy(&huge);
  pthread_attr_destroy(&before);
  bool ran = false;
  StartThread([&ran]() { ran = true; }).join();
  EXPECT_TRUE(ran);
}
#endif

}  // namespace
