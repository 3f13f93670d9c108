#include "plait/train/saved_weights.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "plait/base/error.h"

namespace plait {
namespace {

namespace fs = std::filesystem;

class SavedWeightsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "plait-weights-XXXXXX").string();
    ASSERT_TRUE(::mkdtemp(pattern.data()));
    config_.work_dir = pattern;
    plan_ = plan_steps(/*num_rows=*/25, /*batch_size=*/10, /*max_epochs=*/4, /*max_steps=*/0);  // 3 steps an epoch
  }
  void TearDown() override { fs::remove_all(config_.work_dir); }

  std::vector<int64_t> due_steps() {
    SavedWeights saved(config_, plan_);
    std::vector<int64_t> steps;  // from 1
    for (int64_t step = 0; step < plan_.num_steps; ++step)
      if (saved.due(step)) steps.push_back(step + 1);
    return steps;
  }
  // As an export would leave it.
  void make_folder(const std::string& name, const std::map<std::string, std::string>& metadata) {
    fs::create_directories(config_.work_dir + "/weights/" + name);
    std::string header = R"({"__metadata__":{"format":"pt")";
    for (const auto& [key, value] : metadata) header += ",\"" + key + "\":\"" + value + "\"";
    header += R"(},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    std::ofstream file(config_.work_dir + "/weights/" + name + "/model.safetensors", std::ios::binary);
    auto length = static_cast<uint64_t>(header.size());
    file.write(reinterpret_cast<const char*>(&length), 8);
    file << header << std::string(4, '\0');
    std::ofstream(config_.work_dir + "/weights/" + name + "/config.json") << "{}";
  }
  std::set<std::string> folders() {
    std::set<std::string> names;
    for (const auto& item : fs::directory_iterator(config_.work_dir + "/weights")) names.insert(item.path().filename().string());
    return names;
  }

  TrainConfig config_;
  StepPlan plan_;
};

TEST_F(SavedWeightsTest, WhichSteps) {
  EXPECT_EQ(due_steps(), std::vector<int64_t>{});
  config_.save = {SaveStrategy::kSteps, 5, 0};
  EXPECT_EQ(due_steps(), (std::vector<int64_t>{5, 10}));
  config_.save = {SaveStrategy::kEpoch, 1, 0};
  EXPECT_EQ(due_steps(), (std::vector<int64_t>{3, 6, 9, 12}));
  config_.save = {SaveStrategy::kEpoch, 2, 0};
  EXPECT_EQ(due_steps(), (std::vector<int64_t>{6, 12}));
}

TEST_F(SavedWeightsTest, OnlyFoldersOfThisRunGo) {
  config_.save = {SaveStrategy::kSteps, 1, 2};
  SavedWeights saved(config_, plan_);
  make_folder("step_99", saved.mark(98));  // of an earlier run
  make_folder("mine", {});
  std::vector<std::string> said;
  for (int64_t step = 0; step < 5; ++step) {
    make_folder(fs::path(saved.folder(step)).filename().string(), saved.mark(step));
    if (step == 3) fs::remove_all(saved.folder(2));  // somebody took it away
    saved.written(step, [&](const std::string& line) { said.push_back(line); });
  }
  EXPECT_EQ(folders(), (std::set<std::string>{"mine", "step_4", "step_5", "step_99"}));
  ASSERT_EQ(said.size(), 1u);
  EXPECT_TRUE(said[0].find("step_3 cannot be removed") != std::string::npos) << said[0];
}

TEST_F(SavedWeightsTest, KeepZeroKeepsAll) {
  config_.save = {SaveStrategy::kSteps, 1, 0};
  SavedWeights saved(config_, plan_);
  for (int64_t step = 0; step < 4; ++step) {
    make_folder(fs::path(saved.folder(step)).filename().string(), saved.mark(step));
    saved.written(step, {});
  }
  EXPECT_EQ(folders().size(), 4u);
}

TEST_F(SavedWeightsTest, RefusesWhatItDidNotWrite) {
  config_.save = {SaveStrategy::kSteps, 5, 0};
  SavedWeights saved(config_, plan_);
  saved.check_folders();  // no weights/ at all
  make_folder("step_5", saved.mark(4));
  make_folder("step_7", {});   // not due
  make_folder("step_15", {});  // after the end
  make_folder("step_x", {});
  fs::create_directories(config_.work_dir + "/weights/step_10");  // empty
  saved.check_folders();
  make_folder("step_10", {});
  try {
    saved.check_folders();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_TRUE(std::string(error.what()).find("/weights/step_10, which is there already and was not saved by plait") != std::string::npos)
        << error.what();
  }
  fs::remove_all(config_.work_dir + "/weights/step_10");
  std::ofstream(config_.work_dir + "/weights/step_10") << "a file";
  EXPECT_THROW(saved.check_folders(), Error);
  config_.save.strategy = SaveStrategy::kNo;
  saved.check_folders();
}

}  // namespace
}  // namespace plait
