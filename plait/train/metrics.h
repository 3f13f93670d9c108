// What a run reports: counts of an evaluation, the metrics made of them, and metrics.jsonl.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plait/config/config.h"

namespace plait {

// Sums over evaluated samples; everything an evaluation reports is a function of these. Summed over ranks as plain numbers.
struct EvalCounts {
  double loss_sum = 0;
  double num_targets = 0;
  double num_samples = 0;
  double num_tokens = 0;
  int64_t num_classes = 0;        // 0: no classification
  std::vector<double> confusion;  // [true * num_classes + predicted]

  explicit EvalCounts(int64_t classes = 0) : num_classes(classes), confusion(static_cast<size_t>(classes * classes)) {}
  std::vector<double> to_numbers() const;
  void from_numbers(const std::vector<double>& numbers);
};

struct EvalResult {
  double loss = 0;              // sum over targets / targets
  double accuracy = 0, f1 = 0;  // f1: macro, over all classes
  double perplexity = 0;        // exp(loss)
  int64_t num_samples = 0, num_tokens = 0;
  bool classification = false;
};
// Error(kData) when nothing was scored.
EvalResult make_result(const EvalCounts& counts);

double metric_value(const EvalResult& result, Metric metric);
bool higher_is_better(Metric metric);
std::string metric_name(Metric metric);

// Fields of an evaluation line: eval_loss, eval_accuracy, ... in fixed order.
std::vector<std::pair<std::string, double>> result_fields(const EvalResult& result);

// {"step": 1, "loss": 2.5}: whole numbers without point, others in the shortest form that reads back to the same number.
std::string json_line(const std::vector<std::pair<std::string, double>>& fields);

// metrics.jsonl: lines are appended and flushed one by one. Error(kResource) when the disk is full.
class MetricsLog {
 public:
  explicit MetricsLog(const std::string& path);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;
  void write(const std::vector<std::pair<std::string, double>>& fields);

 private:
  std::string path_;
  std::FILE* file_;
};

}  // namespace plait
