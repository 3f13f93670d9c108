// FileTranslator: reads a settings file of another system key by key into native settings, and notes what became of each key. A key is
// read when the translator asked for it (also when it is null); keys that nobody asked for are left over and reported by the caller.
// The notes are the record that `plait explain` prints; they are made while translating, never by a second reader.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plait/config/given_settings.h"

namespace plait {

// What became of keys that are no setting of their own, by the dotted name as written. A note on a section holds for every key below it.
struct TranslationNotes {
  std::map<std::string, std::string> ignored;  // why it has no effect
  std::map<std::string, std::string> derived;  // what it gave, or was checked against
};

// One key of the file: its value, the dotted name it has there, the place of the key. Empty when not given or null.
struct Place {
  const SettingNode* node = nullptr;
  std::string path, origin;

  explicit operator bool() const { return node != nullptr; }
  bool is_map() const { return node && node->is_map(); }
  GivenSetting given() const { return {*node, path, origin, command_line}; }
  bool command_line = false;
};

class FileTranslator {
 public:
  // `root` must outlive the translator. `command_line`: the tree stands for dotted flags.
  FileTranslator(const SettingNode& root, GivenSettings* out, TranslationNotes* notes, bool command_line = false);

  Place root() const;
  // A key of a section. Error(kUsage) when `section` is given but no section.
  Place at(const Place& section, const std::string& key);
  std::vector<Place> entries(const Place& section);
  // Items of a list, named PATH[0]; a single value is a list of one.
  std::vector<Place> items(const Place& list);

  // The value becomes a native setting (shorthands allowed), as it stands or as `text`. An empty place: nothing.
  void become(const Place& place, const std::string& canonical);
  void become(const Place& place, const std::string& canonical, const std::string& text);
  void become_list(const Place& place, const std::string& canonical, const std::vector<std::string>& texts);
  void ignore(const Place& place, const std::string& why);
  void derive(const Place& place, const std::string& what);
  // Accepted only when it asks for nothing: null, false, 0, "", "none", an empty list or section; else Error(kUsage) with `why`.
  void only_off(const Place& place, const std::string& why);
  [[noreturn]] void refuse(const Place& place, const std::string& why) const;

  // Typed looks that count as reading. Error(kUsage) when the value is of another kind.
  std::string text(const Place& place);
  bool flag(const Place& place, bool otherwise);
  std::optional<double> number(const Place& place);

  // Keys that were not read, in file order; sections of which nothing was read come whole.
  std::vector<Place> left_over() const;
  // The name the translator knows that is most like a left-over one, with its section; "" when none is near.
  std::string nearest_known(const Place& unknown) const;
  GivenSettings* out() { return out_; }
  TranslationNotes* notes() { return notes_; }

 private:
  // A section that became something may still hold keys nobody knows; one that is ignored is ignored as a whole.
  void mark(const Place& place, bool whole = false) {
    if (place.node) (place.is_map() && !whole ? touched_ : read_).insert(place.node);
  }
  bool anything_read(const SettingNode& node) const;
  void collect_left(const Place& place, std::vector<Place>* found) const;

  const SettingNode& root_;
  GivenSettings* out_;
  TranslationNotes* notes_;
  bool command_line_;
  std::set<const SettingNode*> read_, touched_;
  std::set<std::string> asked_;  // dotted names the translator looked for
};

// A scalar node for settings that follow from others.
SettingNode scalar_node(const std::string& text, const std::string& origin);

// "a, b and c (f.json:3)": for one notice on many keys.
std::string list_places(const std::vector<Place>& places);

}  // namespace plait
