#include "plait/train/metrics.h"

#include <cerrno>
#include <cmath>
#include <cstring>

#include "plait/base/error.h"

namespace plait {

std::vector<double> EvalCounts::to_numbers() const {
  std::vector<double> numbers = {loss_sum, num_targets, num_samples, num_tokens};
  numbers.insert(numbers.end(), confusion.begin(), confusion.end());
  return numbers;
}

void EvalCounts::from_numbers(const std::vector<double>& numbers) {
  PLAIT_CHECK(numbers.size() == 4 + confusion.size(), "evaluation counts");
  loss_sum = numbers[0];
  num_targets = numbers[1];
  num_samples = numbers[2];
  num_tokens = numbers[3];
  confusion.assign(numbers.begin() + 4, numbers.end());
}

EvalResult make_result(const EvalCounts& c) {
  if (c.num_targets == 0) throw_error(ExitCode::kData, "evaluation scored nothing: no row has a target");
  EvalResult r;
  r.loss = c.loss_sum / c.num_targets;
  r.perplexity = std::exp(r.loss);
  r.num_samples = static_cast<int64_t>(c.num_samples);
  r.num_tokens = static_cast<int64_t>(c.num_tokens);
  r.classification = c.num_classes > 0;
  if (!r.classification) return r;
  auto n = static_cast<size_t>(c.num_classes);
  double right = 0, f1 = 0;
  for (size_t k = 0; k < n; ++k) {
    double truth = 0, predicted = 0;
    for (size_t j = 0; j < n; ++j) {
      truth += c.confusion[k * n + j];
      predicted += c.confusion[j * n + k];
    }
    right += c.confusion[k * n + k];
    f1 += 2 * c.confusion[k * n + k] / std::max(1.0, truth + predicted);
  }
  r.accuracy = right / c.num_samples;
  r.f1 = f1 / static_cast<double>(n);
  return r;
}

double metric_value(const EvalResult& r, Metric metric) {
  switch (metric) {
    case Metric::kAccuracy: return r.accuracy;
    case Metric::kF1: return r.f1;
    case Metric::kLoss: return r.loss;
    case Metric::kPerplexity: return r.perplexity;
  }
  return r.loss;
}

bool higher_is_better(Metric metric) { return metric == Metric::kAccuracy || metric == Metric::kF1; }

std::string metric_name(Metric metric) {
  switch (metric) {
    case Metric::kAccuracy: return "accuracy";
    case Metric::kF1: return "f1";
    case Metric::kLoss: return "loss";
    case Metric::kPerplexity: return "perplexity";
  }
  return "loss";
}

std::vector<std::pair<std::string, double>> result_fields(const EvalResult& r) {
  std::vector<std::pair<std::string, double>> fields = {{"eval_loss", r.loss}};
  if (r.classification) {
    fields.emplace_back("eval_accuracy", r.accuracy);
    fields.emplace_back("eval_f1", r.f1);
  } else {
    fields.emplace_back("eval_perplexity", r.perplexity);
  }
  fields.emplace_back("eval_samples", static_cast<double>(r.num_samples));
  fields.emplace_back("eval_tokens", static_cast<double>(r.num_tokens));
  return fields;
}

std::string json_line(const std::vector<std::pair<std::string, double>>& fields) {
  std::string line = "{";
  for (const auto& [name, value] : fields) {
    if (line.size() > 1) line += ", ";
    // JSON has no infinity and no NaN; a reader must see that the number is not there.
    std::string text = !std::isfinite(value)                                  ? "null"
                       : value == std::floor(value) && std::abs(value) < 1e15 ? cat(static_cast<int64_t>(value))
                                                                              : cat(value);
    line += cat('"', name, "\": ", text);
  }
  return line + "}";
}

MetricsLog::MetricsLog(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "ae")) {
  if (!file_) throw_error(ExitCode::kUsage, path, " cannot be written: ", std::strerror(errno));
}

MetricsLog::~MetricsLog() { std::fclose(file_); }

void MetricsLog::write(const std::vector<std::pair<std::string, double>>& fields) {
  std::string line = json_line(fields) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file_) != line.size() || std::fflush(file_) != 0)
    throw_error(ExitCode::kResource, path_, " cannot be written: ", std::strerror(errno));
}

}  // namespace plait
