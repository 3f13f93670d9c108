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

int64_t whole_number(std::string_view word, int64_t least, const char* what) {
  int64_t value = 0;
  std::string_view rest = word;
  if (!take_number(rest, value) || !rest.empty() || value < least)
    throw_error(ExitCode::kUsage, "schedule text, line 1: ", what, " '", word, "' is not a whole number of at least ", least);
  return value;
}

void parse_header(std::string_view line, Schedule& schedule) {
  auto words = words_of(line);
  if (words.size() < 4)
    throw_error(ExitCode::kUsage, "schedule text, line 1: expected 'name pipeline_ranks stages micro_batches', found '", line, "'");
  schedule.name = words[0];
  schedule.pp_size = whole_number(words[1], 1, "pipeline ranks");
  schedule.num_stages = whole_number(words[2], 1, "stages");
  schedule.num_micro_batches = whole_number(words[3], 1, "micro-batches");
  if (schedule.num_stages % schedule.pp_size != 0)
    throw_error(ExitCode::kUsage, "schedule text, line 1: ", schedule.num_stages, " stages do not spread evenly over ", schedule.pp_size,
                " pipeline ranks");
  if (words.size() == 4) return;
  if (words[4] != "in_flight" || static_cast<int64_t>(words.size()) - 5 != schedule.pp_size)
    throw_error(ExitCode::kUsage, "schedule text, line 1: expected 'in_flight' and ", schedule.pp_size, " numbers after the sizes, found '",
                line, "'");
  for (size_t i = 5; i < words.size(); ++i) schedule.in_flight_limit.push_back(whole_number(words[i], 0, "in_flight limit"));
}

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
  if (!schedule.in_flight_limit.empty()) text += cat(" in_flight ", join(schedule.in_flight_limit, " "));
  text += '\n';
  for (const auto& actions : schedule.actions) {
    std::vector<std::string> words;
    for (const Action& action : actions) words.push_back(to_string(action));
    text += join(words, " ") + '\n';
  }
  return text;
}

Schedule parse_schedule(const std::string& text) {
  Schedule schedule;
  std::string_view rest = text;
  for (int64_t line_number = 1; !rest.empty(); ++line_number) {
    size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line_number == 1) {
      parse_header(line, schedule);
      continue;
    }
    // An empty line is the list of a rank with nothing to do, except behind the last rank.
    if (static_cast<int64_t>(schedule.actions.size()) == schedule.pp_size) {
      if (words_of(line).empty()) continue;
      throw_error(ExitCode::kUsage, "schedule text, line ", line_number, ": more lines than the ", schedule.pp_size, " pipeline ranks");
    }
    auto& actions = schedule.actions.emplace_back();
    for (std::string_view word : words_of(line)) actions.push_back(parse_action(std::string(word)));
  }
  if (schedule.name.empty()) throw_error(ExitCode::kUsage, "schedule text is empty");
  if (static_cast<int64_t>(schedule.actions.size()) != schedule.pp_size)
    throw_error(ExitCode::kUsage, "schedule text has lines for ", schedule.actions.size(), " pipeline ranks, its first line says ",
                schedule.pp_size);
  return schedule;
}

}  // namespace plait
