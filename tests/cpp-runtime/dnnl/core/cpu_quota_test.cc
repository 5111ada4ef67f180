// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/dnnl/core/cpu_quota_test.cc
 * \brief The CPUs that control groups allow.
 */
#include "src/runtime/contrib/dnnl/core/exec/cpu_quota.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "tests/cpp-runtime/harness/test.h"

namespace dnnl_test::cpu_quota {

using tvm::runtime::contrib::dnnl_backend::CpuQuota;

/*! \brief The quota where these files are all that there is. */
int QuotaOf(const std::map<std::string, std::string>& files) {
  namespace fs = std::filesystem;
  std::string root = (fs::temp_directory_path() / "cpu-quota-XXXXXX").string();
  if (mkdtemp(root.data()) == nullptr) return -1;
  for (const auto& [path, text] : files) {
    fs::create_directories(fs::path(root + path).parent_path());
    std::ofstream(root + path) << text << "\n";
  }
  const int quota = CpuQuota(root);
  fs::remove_all(root);
  return quota;
}

const char kMountinfo[] = "/proc/self/mountinfo";
const char kCgroup[] = "/proc/self/cgroup";
const char kVersion2[] = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw";
const char kVersion1[] = "31 23 0:27 / /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct";

int QuotaOfVersion2(const std::string& max) {
  return QuotaOf({{kMountinfo, kVersion2},
                  {kCgroup, "0::/user/app"},
                  {"/sys/fs/cgroup/user/app/cpu.max", max}});
}

TEST(DNNLCpuQuota, IsNoneWithoutGroups) {
  EXPECT_EQ(QuotaOf({}), 0);
  EXPECT_EQ(QuotaOf({{kMountinfo, kVersion2}}), 0);
  EXPECT_EQ(QuotaOf({{kMountinfo, "a\n1 2 3 4 5 6 - cgroup2\n-\n\n"}, {kCgroup, "0"}}), 0);
}

TEST(DNNLCpuQuota, ReadsVersion2) {
  EXPECT_EQ(QuotaOfVersion2("max 100000"), 0);
  EXPECT_EQ(QuotaOfVersion2("200000 100000"), 2);
  EXPECT_EQ(QuotaOfVersion2("150000 100000"), 2);
  EXPECT_EQ(QuotaOfVersion2("10000 100000"), 1);
  EXPECT_EQ(QuotaOfVersion2("150000 50000"), 3);
  EXPECT_EQ(QuotaOfVersion2(""), 0);
  EXPECT_EQ(QuotaOfVersion2("0 0"), 0);
}

TEST(DNNLCpuQuota, ReadsVersion1) {
  const auto quota = [](const std::string& us) {
    return QuotaOf({{kMountinfo, kVersion1},
                    {kCgroup, "5:cpuset:/\n4:cpu,cpuacct:/docker/a"},
                    {"/cg/cpu,cpuacct/docker/a/cpu.cfs_quota_us", us},
                    {"/cg/cpu,cpuacct/docker/a/cpu.cfs_period_us", "100000"}});
  };
  EXPECT_EQ(quota("-1"), 0);
  EXPECT_EQ(quota("400000"), 4);
  EXPECT_EQ(quota("410000"), 5);
}

TEST(DNNLCpuQuota, IsTheLeastOfTheGroupsAbove) {
  EXPECT_EQ(QuotaOf({{kMountinfo, kVersion2},
                     {kCgroup, "0::/user/app"},
                     {"/sys/fs/cgroup/user/cpu.max", "300000 100000"},
                     {"/sys/fs/cgroup/user/app/cpu.max", "500000 100000"}}),
            3);
  EXPECT_EQ(QuotaOf({{kMountinfo, std::string(kVersion1) + "\n" + kVersion2},
                     {kCgroup, "4:cpu:/\n0::/"},
                     {"/sys/fs/cgroup/cpu.max", "600000 100000"},
                     {"/cg/cpu,cpuacct/cpu.cfs_quota_us", "500000"},
                     {"/cg/cpu,cpuacct/cpu.cfs_period_us", "100000"}}),
            5);
}

TEST(DNNLCpuQuota, IsFoundInContainers) {
  // The group is mounted, and the path is still that of the host.
  const std::string mount =
      "31 23 0:27 /docker/a /cg/cpu rw master:11 - cgroup cgroup rw,cpu,cpuacct";
  const std::string us = "/cg/cpu/cpu.cfs_quota_us", period = "/cg/cpu/cpu.cfs_period_us";
  for (const char* group : {"/docker/a", "/docker/abc", "/../../b", "/", "docker"}) {
    EXPECT_EQ(QuotaOf({{kMountinfo, mount},
                       {kCgroup, std::string("4:cpuacct,cpu:") + group},
                       {us, "200000"},
                       {period, "100000"}}),
              2);
  }
}

}  // namespace dnnl_test::cpu_quota
