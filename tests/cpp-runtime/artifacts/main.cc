// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/artifacts/main.cc
 * \brief Loads and runs damaged artifacts, each drawn from the seed that is its number.
 *
 *   dnnl_artifacts CORPUS [--seed S] [--step N] [--count N] [--seconds T] [--save DIR]
 *   dnnl_artifacts CORPUS --valid      what is not damaged
 *   dnnl_artifacts CORPUS --replay FILE...
 *
 * The trials are run by a child. When one ends it, another child goes on after that. Lines that
 * begin with @ are for scripts/test/artifacts.py.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>

#include "blob_library.h"
#include "trial.h"

namespace artifacts {

namespace {

/*! \brief No trial may take longer, in seconds of the CPU. */
constexpr int kMostSeconds = 5;
/*! \brief Nor may it wait for ever. Far more, so that a busy machine is no failure. */
constexpr int kMostSecondsOfClock = 600;
/*! \brief Allocations below this are not compared with those of the valid artifact. */
constexpr size_t kFewBytes = 1 << 20;
/*! \brief As many times the valid artifact's memory may be taken. */
constexpr double kMostRatio = 2;
/*! \brief A graph whose tensors have more than this is left out: small ones show the same sooner.
 */
constexpr double kMostOfGraph = 4 << 20;

struct Options {
  std::string corpus;
  uint64_t seed{1};
  uint64_t step{1};
  uint64_t count{~uint64_t{0}};
  double seconds{1e9};
  std::string save;
  bool is_valid{false};
  std::vector<std::string> replay;
};

/*! \brief What a child leaves to its parent. */
struct Shared {
  /*! \brief The number of trials that have begun, and whether the last one has ended. */
  uint64_t begun;
  bool is_running;
  uint64_t seed;
  char name[256];
  char what[4096];
  size_t size;
  char bytes[4 << 20];
  uint64_t counts[kNumParts][kNumOutcomes];
  uint64_t failures;
  double most_ratio;
  uint64_t most_ratio_seed;
  double slowest;
  uint64_t slowest_seed;
};

double CpuSeconds() {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return time.tv_sec + 1e-6 * time.tv_usec; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void SetTimers(int cpu, int clock) {
  // Nobody handles the signals: they end the process.
  const itimerval timer = {{0, 0}, {cpu, 0}};
  setitimer(ITIMER_PROF, &timer, nullptr);
  alarm(clock);
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

class Campaign {
 public:
  explicit Campaign(Options options) : options_(std::move(options)) {
    LoadCorpus();
    library_ =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libdnnl_artifacts_blob.so";
    void* memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared_ = static_cast<Shared*>(memory);
  }

  int Main() {
    std::cout << "@corpus " << corpus_.size() << std::endl;
    if (corpus_.empty()) return 2;
    if (!options_.replay.empty()) options_.count = options_.replay.size();
    if (options_.is_valid) options_.count = corpus_.size() * kNumParts;
    while (shared_->begun < options_.count && Elapsed() < options_.seconds) {
      const pid_t child = fork();
      if (child == 0) {
        RunAll();
        _exit(0);
      }
      int status = 0;
      waitpid(child, &status, 0);
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
      if (!shared_->is_running) std::snprintf(shared_->name, sizeof(shared_->name), "no artifact");
      shared_->is_running = false;
      Report(WhyEnded(status));
    }
    PrintTotal();
    return shared_->failures == 0 ? 0 : 1;
  }

 private:
  void LoadCorpus() {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(options_.corpus)) {
      if (entry.path().extension() == ".json") paths.push_back(entry.path());
    }
    // The same order everywhere.
    std::sort(paths.begin(), paths.end());
    for (const std::string& path : paths) {
      Artifact artifact{std::filesystem::path(path).stem(), {}, {}};
      const bool good = ParseJson(ReadFile(path), &artifact.graph) &&
                        ReadSignature(artifact.graph, nullptr, &artifact.signature);
      if (!good) {
        std::cout << "@odd " << path << " is no graph" << std::endl;
        continue;
      }
      artifact.signature = Closed(artifact.signature, {});
      if (artifact.signature.bytes() > kMostOfGraph) continue;
      dictionary_.Add(artifact.graph);
      corpus_.push_back(std::move(artifact));
    }
  }

  double Elapsed() const {
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start_;
    return time.count();
  }

  void RunAll() {
    while (shared_->begun < options_.count && Elapsed() < options_.seconds) {
      RunOne(shared_->begun++);
    }
  }

  void RunOne(uint64_t number) {
    shared_->seed = options_.seed + number * options_.step;
    Trial trial;
    std::string what = "nothing";
    if (!options_.replay.empty()) {
      trial = ReadTrial(options_.replay[number]);
    } else if (options_.is_valid) {
      trial = Valid(corpus_[number / kNumParts], static_cast<Part>(number % kNumParts));
      if (trial.bytes.size() > BlobLibrary::kMostBytes) return;
    } else {
      trial = Draw(options_.seed + number * options_.step, &what);
    }
    Announce(trial, what);
    SetTimers(kMostSeconds, kMostSecondsOfClock);
    const double start = CpuSeconds();
    const Result result = Run(trial, library_);
    SetTimers(0, 0);
    const double seconds = CpuSeconds() - start;
    const double ratio = RatioOfPeaks(trial, result);
    shared_->is_running = false;
    Judge(trial, result, ratio, seconds);
  }

  /*! \brief A damaged artifact; the same for the same number. */
  Trial Draw(uint64_t seed, std::string* what) {
    Random random(seed);
    const Artifact& artifact = random.Pick(corpus_);
    const std::pair<int, Part> weights[] = {{64, Part::kGraph},  {12, Part::kText},
                                            {6, Part::kModule},  {7, Part::kConstants},
                                            {7, Part::kLibrary}, {4, Part::kCSource}};
    int at = static_cast<int>(random.Below(100));
    Part part = Part::kGraph;
    for (const auto& [weight, choice] : weights) {
      part = choice;
      if ((at -= weight) < 0) break;
    }
    Trial trial = Valid(artifact, part);
    if (trial.bytes.size() > BlobLibrary::kMostBytes) trial = Valid(artifact, Part::kGraph);
    trial.seed = seed;
    trial.constants = AnyFill(&random);
    trial.inputs = AnyFill(&random);
    if (trial.part == Part::kGraph) {
      Json graph = artifact.graph;
      *what = MutateGraph(dictionary_, &random, &graph);
      trial.bytes = ToText(graph);
    } else {
      const bool is_text = trial.part == Part::kText;
      *what = (is_text ? MutateText : MutateBinary)(&random, &trial.bytes);
    }
    return trial;
  }

  static Trial Valid(const Artifact& artifact, Part part) {
    Trial trial;
    trial.artifact = &artifact;
    trial.part = part;
    trial.bytes = BytesOf(artifact, part);
    return trial;
  }

  /*! \brief How many times as much as the valid artifact it allocates, if that is much. */
  double RatioOfPeaks(const Trial& trial, const Result& result) {
    double usual = kFewBytes;
    if (result.peak > kFewBytes && !options_.is_valid) {
      double& valid = valid_peaks_[{trial.artifact, trial.part}];
      if (valid == 0) valid = Run(Valid(*trial.artifact, trial.part), library_).peak;
      usual = std::max(usual, valid);
    }
    // A graph that asks for larger tensors, and is right, may need more.
    const double valid_tensors = std::max(1., trial.artifact->signature.bytes());
    if (result.outcome == Outcome::kRun && result.tensor_bytes > valid_tensors) {
      usual *= result.tensor_bytes / valid_tensors;
    }
    // The first to want a kernel pays for its compilation, which the valid one then does not.
    double peak = result.peak;
    if (peak > kMostRatio * usual) peak = std::min<double>(peak, Run(trial, library_).peak);
    return peak / usual;
  }

  void Announce(const Trial& trial, const std::string& what) {
    shared_->seed = trial.seed;
    const std::string name = trial.artifact->name + " " + NameOf(trial.part);
    std::snprintf(shared_->name, sizeof(shared_->name), "%s", name.c_str());
    std::snprintf(shared_->what, sizeof(shared_->what), "%s", what.c_str());
    const std::string file = FileOf(trial);
    shared_->size = std::min(file.size(), sizeof(shared_->bytes));
    std::memcpy(shared_->bytes, file.data(), shared_->size);
    shared_->is_running = true;
  }

  void Judge(const Trial& trial, const Result& result, double ratio, double seconds) {
    ++shared_->counts[static_cast<int>(trial.part)][static_cast<int>(result.outcome)];
    if (ratio > shared_->most_ratio) {
      shared_->most_ratio = ratio;
      shared_->most_ratio_seed = trial.seed;
    }
    if (seconds > shared_->slowest) {
      shared_->slowest = seconds;
      shared_->slowest_seed = trial.seed;
    }
    if (!options_.replay.empty() || options_.count == 1 ||
        (options_.is_valid && result.outcome != Outcome::kRun)) {
      std::cout << shared_->name << ": " << shared_->what << "\n  " << NameOf(result.outcome)
                << ", " << result.peak << " bytes, " << seconds << " s"
                << (result.error.empty() ? "" : "\n  ") << result.error << std::endl;
    }
    if (result.error.rfind("not TVM's", 0) == 0) {
      std::cout << "@odd seed " << trial.seed << " " << result.error << std::endl;
    }
    if (!result.failure.empty()) Report(result.failure);
    if (ratio > kMostRatio && !options_.is_valid) {
      Report("it allocates " + std::to_string(result.peak) + " bytes, " + std::to_string(ratio) +
             " x as many as expected");
    }
  }

  std::string WhyEnded(int status) const {
    if (WIFEXITED(status)) return "a sanitizer's report";
    const int signal = WTERMSIG(status);
    if (signal == SIGPROF || signal == SIGALRM) return "it takes too long";
    return std::string("it ends the process: ") + strsignal(signal);
  }

  void Report(const std::string& why) {
    ++shared_->failures;
    std::cout << "@failed " << why << "\n@seed " << shared_->seed << " of " << shared_->name
              << "\n@what " << shared_->what << std::endl;
    if (options_.save.empty()) return;
    const std::string path = options_.save + "/seed-" + std::to_string(shared_->seed) + ".artifact";
    std::ofstream(path, std::ios::binary).write(shared_->bytes, shared_->size);
    std::cout << "@saved " << path << std::endl;
  }

  /*! \brief A trial as a file: a line of what it is, then the bytes. */
  static std::string FileOf(const Trial& trial) {
    std::ostringstream file;
    file << trial.artifact->name << " " << static_cast<int>(trial.part) << " "
         << static_cast<int>(trial.constants) << " " << static_cast<int>(trial.inputs) << " "
         << trial.seed << "\n"
         << trial.bytes;
    return file.str();
  }

  Trial ReadTrial(const std::string& path) const {
    const std::string file = ReadFile(path);
    std::istringstream line(file.substr(0, file.find('\n')));
    std::string name;
    int part = 0, constants = 0, inputs = 0;
    Trial trial;
    line >> name >> part >> constants >> inputs >> trial.seed;
    for (const Artifact& artifact : corpus_) {
      if (artifact.name == name) trial.artifact = &artifact;
    }
    if (trial.artifact == nullptr || !line) {
      std::cerr << path << ": the corpus has no " << name << std::endl;
      std::exit(2);
    }
    trial.part = static_cast<Part>(part);
    trial.constants = static_cast<Fill>(constants);
    trial.inputs = static_cast<Fill>(inputs);
    trial.bytes = file.substr(file.find('\n') + 1);
    return trial;
  }

  void PrintTotal() const {
    for (int part = 0; part < kNumParts; ++part) {
      std::cout << "@count " << NameOf(static_cast<Part>(part));
      for (uint64_t count : shared_->counts[part]) std::cout << " " << count;
      std::cout << std::endl;
    }
    std::cout << "@total " << shared_->begun << " trials, " << shared_->failures << " failures, "
              << Elapsed() << " s\n@most " << shared_->most_ratio << " " << shared_->most_ratio_seed
              << "\n@slowest " << shared_->slowest << " " << shared_->slowest_seed << std::endl;
  }

  Options options_;
  std::vector<Artifact> corpus_;
  Dictionary dictionary_;
  /*! \brief What valid artifacts allocate, of those that were compared with. */
  std::map<std::pair<const Artifact*, Part>, double> valid_peaks_;
  std::string library_;
  Shared* shared_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

Options ReadOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto next = [&]() { return std::string(i + 1 < argc ? argv[++i] : "0"); };
    if (word == "--seed") {
      options.seed = std::stoull(next());
    } else if (word == "--step") {
      options.step = std::stoull(next());
    } else if (word == "--count") {
      options.count = std::stoull(next());
    } else if (word == "--seconds") {
      options.seconds = std::stod(next());
    } else if (word == "--save") {
      options.save = next();
    } else if (word == "--valid") {
      options.is_valid = true;
    } else if (word == "--replay") {
      while (i + 1 < argc) options.replay.push_back(next());
    } else {
      options.corpus = word;
    }
  }
  return options;
}

}  // namespace

}  // namespace artifacts

int main(int argc, char** argv) {
  return artifacts::Campaign(artifacts::ReadOptions(argc, argv)).Main();
}
