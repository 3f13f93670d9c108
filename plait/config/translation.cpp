#include "plait/config/translation.h"

#include <algorithm>

#include "plait/base/error.h"
#include "plait/config/scalar.h"

namespace plait {

FileTranslator::FileTranslator(const SettingNode& root, GivenSettings* out, TranslationNotes* notes, bool command_line)
    : root_(root), out_(out), notes_(notes), command_line_(command_line) {}

Place FileTranslator::root() const { return {&root_, "", root_.origin, command_line_}; }

Place FileTranslator::at(const Place& section, const std::string& key) {
  if (!section) return {};
  asked_.insert(section.path.empty() ? key : cat(section.path, ".", key));
  if (!section.is_map()) throw_error(ExitCode::kUsage, quote(section.path, section.given()), " must be a section with names in it");
  for (const auto& entry : section.node->entries) {
    if (entry.key != key) continue;
    Place place{&entry.value, section.path.empty() ? key : cat(section.path, ".", key), entry.origin, command_line_};
    if (!entry.value.is_null()) return place;
    mark(place);
    return {};
  }
  return {};
}

std::vector<Place> FileTranslator::entries(const Place& section) {
  std::vector<Place> out;
  if (!section) return out;
  if (!section.is_map()) throw_error(ExitCode::kUsage, quote(section.path, section.given()), " must be a section with names in it");
  for (const auto& entry : section.node->entries)
    out.push_back({&entry.value, section.path.empty() ? entry.key : cat(section.path, ".", entry.key), entry.origin, command_line_});
  return out;
}

std::vector<Place> FileTranslator::items(const Place& list) {
  if (!list) return {};
  if (list.node->kind != SettingNode::Kind::kSequence) return {list};
  std::vector<Place> out;
  for (size_t i = 0; i < list.node->items.size(); ++i)
    out.push_back({&list.node->items[i], cat(list.path, "[", i, "]"), list.node->items[i].origin, command_line_});
  return out;
}

void FileTranslator::become(const Place& place, const std::string& canonical) {
  if (!place) return;
  mark(place);
  record_setting(canonical, place.given(), out_);
}

void FileTranslator::become(const Place& place, const std::string& canonical, const std::string& text) {
  if (!place) return;
  mark(place);
  if (place.command_line && place.is_map()) return;  // a dotted flag brings one value, not the defaults of its section
  GivenSetting given = place.given();
  given.value = scalar_node(text, place.origin);
  record_setting(canonical, std::move(given), out_);
}

void FileTranslator::become_list(const Place& place, const std::string& canonical, const std::vector<std::string>& texts) {
  if (!place) return;
  mark(place);
  GivenSetting given = place.given();
  given.value = SettingNode{};
  given.value.kind = SettingNode::Kind::kSequence;
  given.value.origin = place.origin;
  for (const auto& text : texts) given.value.items.push_back(scalar_node(text, place.origin));
  record_setting(canonical, std::move(given), out_);
}

void FileTranslator::ignore(const Place& place, const std::string& why) {
  if (!place) return;
  mark(place, true);
  notes_->ignored[place.path] = why;
}

void FileTranslator::derive(const Place& place, const std::string& what) {
  if (!place) return;
  mark(place);
  notes_->derived[place.path] = what;
}

void FileTranslator::only_off(const Place& place, const std::string& why) {
  if (!place) return;
  const SettingNode& node = *place.node;
  bool off = node.items.empty() && node.entries.empty();
  if (node.kind == SettingNode::Kind::kScalar) {
    std::string word = node.text;
    std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    off = word.empty() || word == "none" || word == "auto" || word == "null" || parse_bool_text(word) == false ||
          parse_real_text(word) == 0.0;
  }
  if (!off) refuse(place, why);
  ignore(place, "it asks for nothing");
}

void FileTranslator::refuse(const Place& place, const std::string& why) const {
  throw_error(ExitCode::kUsage, quote(place.path, place.given()), ": ", why);
}

std::string FileTranslator::text(const Place& place) {
  if (!place) return "";
  mark(place);
  if (place.node->kind != SettingNode::Kind::kScalar) throw_error(ExitCode::kUsage, quote(place.path, place.given()), " must be one value");
  return place.node->text;
}

bool FileTranslator::flag(const Place& place, bool otherwise) {
  if (!place) return otherwise;
  auto value = parse_bool_text(text(place));
  if (!value) throw_error(ExitCode::kUsage, quote(place.path, place.given()), " is not true or false");
  return *value;
}

std::optional<double> FileTranslator::number(const Place& place) {
  if (!place) return std::nullopt;
  auto value = parse_real_text(text(place));
  if (!value) throw_error(ExitCode::kUsage, quote(place.path, place.given()), " is not a number");
  return value;
}

bool FileTranslator::anything_read(const SettingNode& node) const {
  if (read_.count(&node) || touched_.count(&node)) return true;
  for (const auto& item : node.items)
    if (anything_read(item)) return true;
  for (const auto& entry : node.entries)
    if (anything_read(entry.value)) return true;
  return false;
}

void FileTranslator::collect_left(const Place& place, std::vector<Place>* found) const {
  const SettingNode& node = *place.node;
  if (read_.count(&node) || node.is_null()) return;
  bool known_section = node.is_map() && !node.entries.empty() && asked_.count(place.path);
  if (&node != &root_ && !known_section && !anything_read(node)) {
    found->push_back(place);
    return;
  }
  for (size_t i = 0; i < node.items.size(); ++i)
    collect_left({&node.items[i], cat(place.path, "[", i, "]"), node.items[i].origin, command_line_}, found);
  for (const auto& entry : node.entries)
    collect_left({&entry.value, place.path.empty() ? entry.key : cat(place.path, ".", entry.key), entry.origin, command_line_}, found);
}

std::vector<Place> FileTranslator::left_over() const {
  std::vector<Place> found;
  collect_left(root(), &found);
  return found;
}

std::string FileTranslator::nearest_known(const Place& unknown) const {
  auto dot = unknown.path.rfind('.');
  std::string parent = dot == std::string::npos ? "" : unknown.path.substr(0, dot + 1), word = unknown.path.substr(parent.size());
  std::vector<std::string> siblings;
  for (const auto& name : asked_)
    if (name.rfind(parent, 0) == 0 && name.find('.', parent.size()) == std::string::npos) siblings.push_back(name.substr(parent.size()));
  std::string near = nearest(word, siblings);
  return near.empty() ? "" : parent + near;
}

SettingNode scalar_node(const std::string& text, const std::string& origin) {
  SettingNode node;
  node.kind = SettingNode::Kind::kScalar;
  node.text = text;
  node.origin = origin;
  return node;
}

std::string list_places(const std::vector<Place>& places) {
  constexpr size_t kMost = 40;
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(places.size(), kMost); ++i) names.push_back(cat(places[i].path, " (", places[i].origin, ")"));
  std::string out = join(names);
  if (places.size() > kMost) out += cat(" and ", places.size() - kMost, " more");
  return out;
}

}  // namespace plait
