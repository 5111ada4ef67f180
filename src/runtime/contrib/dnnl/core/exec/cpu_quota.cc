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
 * \file src/runtime/contrib/dnnl/core/exec/cpu_quota.cc
 * \brief How many CPUs the control groups of this process let it use.
 */
#include "cpu_quota.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

/*! \brief The words of a line, or what else is between separators. */
std::vector<std::string> Split(const std::string& line, char separator) {
  std::vector<std::string> words;
  std::istringstream stream(line);
  for (std::string word; std::getline(stream, word, separator);) words.push_back(word);
  return words;
}

bool Contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/*! \brief A hierarchy of control groups that limits CPU time. */
struct Hierarchy {
  bool is_version_2;
  std::string mount_point;
  /*! \brief Which group is seen at the mount point: in a container often not the first one. */
  std::string mount_root;
};

/*! \brief The hierarchies that a line of /proc/self/mountinfo mounts: one or none. */
std::vector<Hierarchy> HierarchiesOf(const std::string& line) {
  // id, parent, device, root, mount point, options, optional fields, "-", type, source, options
  const std::vector<std::string> words = Split(line, ' ');
  const auto dash = std::find(words.begin(), words.end(), "-");
  if (words.size() < 6 || words.end() - dash < 4) return {};
  const std::string& type = dash[1];
  const bool is_version_2 = type == "cgroup2";
  if (!is_version_2 && !(type == "cgroup" && Contains(Split(dash[3], ','), "cpu"))) return {};
  return {{is_version_2, words[4], words[3]}};
}

/*! \brief The group of this process in a hierarchy; empty if /proc/self/cgroup has none. */
std::string GroupOf(const Hierarchy& hierarchy, const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    // "4:cpu,cpuacct:/group" or, of version 2, "0::/group"
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool matches = hierarchy.is_version_2 ? line.compare(0, second + 1, "0::") == 0
                                                : Contains(Split(controllers, ','), "cpu");
    if (matches) return line.substr(second + 1);
  }
  return "";
}

/*! \brief The limit of one group, in CPUs. */
double LimitOf(const std::string& directory, bool is_version_2) {
  // "max" of version 2 and -1 of version 1 stand for no limit.
  double quota = -1, period = 0;
  if (is_version_2) {
    std::ifstream(directory + "/cpu.max") >> quota >> period;
  } else {
    std::ifstream(directory + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(directory + "/cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? quota / period : kUnlimited;
}

/*! \brief The least limit of a group and of those that it is in, as far as they can be seen. */
double LimitOf(const Hierarchy& hierarchy, const std::string& root) {
  std::string group = GroupOf(hierarchy, root);
  const std::string& above = hierarchy.mount_root;
  if (above != "/" && group.compare(0, above.size(), above) == 0) group.erase(0, above.size());
  // A group that is not below the mount point is not to be seen there.
  if (group.find('/') != 0 || group.find("..") != std::string::npos) group.clear();
  double limit = kUnlimited;
  for (;;) {
    while (!group.empty() && group.back() == '/') group.pop_back();
    const std::string directory = root + hierarchy.mount_point + group;
    limit = std::min(limit, LimitOf(directory, hierarchy.is_version_2));
    if (group.empty()) return limit;
    group.erase(group.rfind('/'));
  }
}

}  // namespace

int CpuQuota(const std::string& root) {
  double limit = kUnlimited;
  std::ifstream mounts(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    for (const Hierarchy& hierarchy : HierarchiesOf(line)) {
      limit = std::min(limit, LimitOf(hierarchy, root));
    }
  }
  // More CPUs than any machine has are no limit.
  constexpr double kMax = 1 << 20;
  return limit > kMax ? 0 : static_cast<int>(std::ceil(limit));
}

}  // namespace tvm::runtime::contrib::dnnl_backend
