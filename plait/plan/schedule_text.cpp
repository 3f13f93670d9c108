#include <algorithm>
#include <charconv>
#include <string_view>

#include "plait/base/error.h"
#include "plait/plan/schedule.h"

namespace plait {

namespace {

struct KindLetters {
  ActionKind kind;
  const char* letters;
};
// Two letters first: "SF" must not be read as an unknown "S".
constexpr KindLetters kKindLetters[] = {
    {ActionKind::kSendForward, "SF"},  {ActionKind::kRecvForward, "RF"}, {ActionKind::kSendBackward, "SB"},
    {ActionKind::kRecvBackward, "RB"}, {ActionKind::kForward, "F"},      {ActionKind::kBackward, "B"},
    {ActionKind::kWeight, "W"},
};

// A non-negative whole number at the front of `text`, which is shortened by it. False when there is none.
bool take_number(std::string_view& text, int64_t& value) {
  if (text.empty() || text.front() < '0' || text.front() > '9') return false;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return false;
  text.remove_prefix(end - text.data());
  return true;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    size_t end = std::min(line.find_first_of(" \t\r"), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

// Where a fault is: "plan.txt:2", or "schedule text, line 2" when the text came from nowhere.
std::string place_of(const std::string& file, int64_t line) {
  return file.empty() ? cat("schedule text, line ", line) : cat(file, ":", line);
}

// The first line, word by word.
class HeaderReader {
 public:
  HeaderReader(std::string_view line, std::string place) : line_(line), words_(words_of(line)), place_(std::move(place)) {}

  void read(Schedule& schedule) {
    if (words_.size() < 4)
      throw_error(ExitCode::kUsage, place_, ": expected 'name pipeline_ranks stages micro_batches', found '", line_, "'");
    schedule.name = words_[0];
    schedule.pp_size = number(1, 1, "pipeline ranks");
    schedule.num_stages = number(2, 1, "stages");
    schedule.num_micro_batches = number(3, 1, "micro-batches");
    if (schedule.num_stages % schedule.pp_size != 0)
      throw_error(ExitCode::kUsage, place_, ": ", schedule.num_stages, " stages do not spread evenly over ", schedule.pp_size,
                  " pipeline ranks");
    next_ = 4;
    if (take_list("ranks", schedule.num_stages, "a stage", schedule.stage_ranks)) drop_plain_table(schedule);
    take_list("in_flight", schedule.pp_size, "a pipeline rank", schedule.in_flight_limit);
    if (next_ != words_.size())
      throw_error(ExitCode::kUsage, place_, ": after the sizes only 'ranks' and then 'in_flight' may stand, each with its numbers; found '",
                  words_[next_], "'");
  }

 private:
  int64_t number(size_t index, int64_t least, const char* what) const {
    int64_t value = 0;
    std::string_view rest = words_[index];
    if (!take_number(rest, value) || !rest.empty() || value < least)
      throw_error(ExitCode::kUsage, place_, ": ", what, " '", words_[index], "' is not a whole number of at least ", least);
    return value;
  }

  // "word n n n": one number for each of `count`.
  bool take_list(const char* word, int64_t count, const char* of_what, std::vector<int64_t>& out) {
    if (next_ >= words_.size() || words_[next_] != word) return false;
    ++next_;
    if (count > static_cast<int64_t>(words_.size() - next_))
      throw_error(ExitCode::kUsage, place_, ": '", word, "' needs ", count, " numbers, one ", of_what, "; found '", line_, "'");
    for (int64_t i = 0; i < count; ++i) out.push_back(number(next_++, 0, word));
    return true;
  }

  // A table that says what holds without one is none, so that equal schedules are equal.
  static void drop_plain_table(Schedule& schedule) {
    for (size_t s = 0; s < schedule.stage_ranks.size(); ++s)
      if (schedule.stage_ranks[s] != static_cast<int64_t>(s) % schedule.pp_size) return;
    schedule.stage_ranks.clear();
  }

  std::string_view line_;
  std::vector<std::string_view> words_;
  std::string place_;
  size_t next_ = 0;
};

}  // namespace

std::string to_string(const Action& action) {
  for (const auto& [kind, letters] : kKindLetters)
    if (kind == action.kind) return cat(action.stage, letters, action.micro_batch);
  return "";
}

Action parse_action(const std::string& text) {
  Action action;
  std::string_view rest = text;
  if (take_number(rest, action.stage)) {
    for (const auto& [kind, letters] : kKindLetters) {
      if (rest.substr(0, std::string_view(letters).size()) != letters) continue;
      std::string_view number = rest.substr(std::string_view(letters).size());
      action.kind = kind;
      if (take_number(number, action.micro_batch) && number.empty()) return action;
    }
  }
  throw_error(ExitCode::kUsage, "action '", text, "' is not 'stage kind micro-batch' as in 2F0, with kind one of F, B, W, SF, RF, SB, RB");
}

std::string to_text(const Schedule& schedule) {
  std::string text = cat(schedule.name, " ", schedule.pp_size, " ", schedule.num_stages, " ", schedule.num_micro_batches);
  if (!schedule.stage_ranks.empty()) text += cat(" ranks ", join(schedule.stage_ranks, " "));
  if (!schedule.in_flight_limit.empty()) text += cat(" in_flight ", join(schedule.in_flight_limit, " "));
  text += '\n';
  for (const auto& actions : schedule.actions) {
    std::vector<std::string> words;
    for (const Action& action : actions) words.push_back(to_string(action));
    text += join(words, " ") + '\n';
  }
  return text;
}

Schedule parse_schedule(const std::string& text, const std::string& file) {
  Schedule schedule;
  std::string_view rest = text;
  for (int64_t line_number = 1; !rest.empty(); ++line_number) {
    size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    std::string place = place_of(file, line_number);
    if (line_number == 1) {
      HeaderReader(line, place).read(schedule);
      continue;
    }
    // An empty line is the list of a rank with nothing to do, except behind the last rank.
    if (static_cast<int64_t>(schedule.actions.size()) == schedule.pp_size) {
      if (words_of(line).empty()) continue;
      throw_error(ExitCode::kUsage, place, ": more lines than the ", schedule.pp_size, " pipeline ranks");
    }
    auto& actions = schedule.actions.emplace_back();
    for (std::string_view word : words_of(line)) {
      try {
        actions.push_back(parse_action(std::string(word)));
      } catch (const Error& error) {
        throw_error(error.code(), place, ": rank ", schedule.actions.size() - 1, ": ", error.what());
      }
    }
  }
  const std::string whole = file.empty() ? "schedule text" : file;
  if (schedule.name.empty()) throw_error(ExitCode::kUsage, whole, " is empty");
  if (static_cast<int64_t>(schedule.actions.size()) != schedule.pp_size)
    throw_error(ExitCode::kUsage, whole, " has lines for ", schedule.actions.size(), " pipeline ranks, its first line says ",
                schedule.pp_size);
  return schedule;
}

}  // namespace plait
