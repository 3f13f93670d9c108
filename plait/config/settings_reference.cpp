// docs/settings.md from the table of settings and the lists of Hugging Face names.
#include "plait/config/describe.h"
#include "plait/config/given_settings.h"
#include "plait/config/hugging_face.h"
#include "plait/config/load_config.h"
#include "plait/config/modelscope.h"
#include "plait/config/setting_text.h"

namespace plait {

namespace {

std::string cell(std::string text) {
  std::string out;
  for (char c : text) {
    if (c == '|') out += "\\|";
    else out += c;
  }
  return out;
}

std::string kind(const SettingInfo& info, int64_t) { return cat("whole number", info.zero_word.empty() ? "" : " or ", info.zero_word); }
std::string kind(const SettingInfo&, double) { return "number"; }
std::string kind(const SettingInfo& info, const std::optional<double>&) { return cat("number or ", info.zero_word); }
std::string kind(const SettingInfo&, bool) { return "true, false"; }
std::string kind(const SettingInfo& info, const std::string&) {
  return !info.words.empty() ? join(info.words) : info.is_path ? "path" : "text";
}
std::string kind(const SettingInfo&, const std::vector<std::string>&) { return "list of texts"; }
std::string kind(const SettingInfo&, const std::vector<int64_t>&) { return "list of whole numbers"; }
std::string kind(const SettingInfo&, const std::vector<Metric>&) { return cat("list of ", join(enum_choices<Metric>())); }
template <class E, std::enable_if_t<std::is_enum_v<E>, int> = 0>
std::string kind(const SettingInfo&, E) {
  return join(enum_choices<E>());
}

// Limits that only keep arithmetic from overflowing are not worth a reader's time.
std::string shown_range(Range range) {
  if (range.high >= detail::kLargestSize) range.high = INFINITY;
  range.high_open = range.high_open && std::isfinite(range.high);
  return range.text();
}

class Table {
 public:
  template <class Field>
  void operator()(const SettingInfo& info, const Field& field) {
    std::string section = info.name.substr(0, info.name.rfind('.') == std::string::npos ? 0 : info.name.rfind('.'));
    if (section != section_ || out_.empty()) {
      out_ += cat("\n### ", section.empty() ? "top level" : section,
                  "\n\n| setting | values | default | unit | effect |\n|---|---|---|---|---|\n");
      section_ = section;
    }
    std::string range = shown_range(info.range), effect = info.effect;
    if (!info.aliases.empty()) effect += cat(" (also: ", join(info.aliases), ")");
    std::string value = setting_text(info, field);
    if (value == "\"\"" || value == "[]") value = "none";
    out_ += cat("| `", info.name, "` | ", cell(kind(info, field)), range.empty() ? "" : ", ", cell(range), " | ", cell(value), " | ",
                info.unit, " | ", cell(effect), " |\n");
  }
  std::string take() { return std::move(out_); }

 private:
  std::string section_, out_;
};

const char* kIntroduction = R"(# Settings

This file is generated from `plait/config/describe.h`, `plait/config/describe_comm.h`, `plait/config/hugging_face_names.cpp` and
`plait/config/modelscope_names.cpp`; a unit test keeps it equal to them
(`config_unit_test --gtest_also_run_disabled_tests --gtest_filter='*DISABLED_WriteSettings*'` writes it anew).

## How settings are read

- A settings file is YAML or JSON in one of four forms, told by marks; `plait explain FILE` prints what each of its lines became.

| form | mark | unknown key |
|---|---|---|
| native (sections as below) | `train.distributed`, or no other mark | error |
| DeepSpeed ([deepspeed.md](deepspeed.md)) | `zero_optimization` or `train_micro_batch_size_per_gpu` at the top level; `train_batch_size` without a mark of Hugging Face | error |
| ModelScope ([modelscope.md](modelscope.md)) | `framework`, or `train.dataloader`; flat files: `model_dir`, `save_checkpoint_epochs`, `train_dataset_name` or `val_dataset_name` | one notice |
| Hugging Face TrainingArguments (flat names) | `output_dir` or `per_device_train_batch_size` at the top level | error |

- Of several marks the upper row wins, with two exceptions. `per_device_train_batch_size` is in ModelScope's vocabulary too: beside it any name of ModelScope's
  own (the list below, such as `logging_interval`) makes the file ModelScope's. `output_dir` and a mark of a flat ModelScope file together are an error.
- Flags: `--train.batch_size 32`, or the last part of a name where only one setting has it: `--batch_size 32`, `--lr 1e-4`; `-` and `_` are alike.
  Short names: `--model` or `--model_name_or_path` (model.path), `--train_file`, `--valid_file` or `--validation_file`, `--work_dir`, `--task`, and
  `--dp_size`, `--tp_size`, `--pp_size` (the sizes of the data, tensor and pipeline axis). All Hugging Face and ModelScope names below are
  flags as well, and so are dotted names of ModelScope's files (`--train.dataloader.batch_size_per_gpu 4`).
- Words with two spellings: `fp32`, `bf16`, `fp16`, `fp64` for types; `bfloat16`, `float16`, `float8` for compression; `interleaved` (interleaved_1f1b); `ppl`
  (perplexity); `by_epoch`, `by_step` (epoch, steps) and `false` (no) for strategies, `false` (none) for the compression's algorithm; `noam` (inverse_sqrt).
- `--set a.b=c` wins over flags, flags win over the file. `--set name=null` goes back to the default. `--print-config` shows what holds.
- An unknown key (in ModelScope files: one notice), a key given twice (also under two names) and a value of the wrong kind are errors that name file and line.
- Anchors and `<<:` merges work; a top-level key whose anchor is used elsewhere may have any name. `~` and `null` mean "not given".
  `010` is ten, with a warning. `2e-5` is a number. `yes`, `no`, `on`, `off` are truth values only where one is expected.
- Relative paths in a file are relative to that file, those of flags to the current folder.
- Sizes: world = data_parallel_size x model_parallel_size x pipeline_parallel_size. A size left out follows from the others. A size on the command line replaces
  the file's three sizes as a whole, and a line says so.
- Batch: batch_size = per_device_train_batch_size x data_parallel_size x gradient_accumulation_steps. Two given: the third follows. Only batch_size: accumulation
  is 1 without a pipeline, else the largest divisor of batch_size / data_parallel_size up to 2 x pipeline_parallel_size. Nothing given: 8 rows a data rank.

## All settings
)";

}  // namespace

std::string settings_reference_markdown() {
  Table table;
  const Config defaults;
  describe(table, defaults);
  std::string out = kIntroduction + table.take();
  out += "\n### Shorthands\n\n| name | stands for |\n|---|---|\n";
  for (const auto& shorthand : shorthands()) out += cat("| `", shorthand.name, "` | ", cell(shorthand.effect), " |\n");
  out += "\n`optimizer` may stand under `train.distributed` instead of `train`; under both is an error.\n";
  out += "\n## Hugging Face names\n\n| name | setting | remarks |\n|---|---|---|\n";
  for (const auto& name : hugging_face_names()) {
    bool native = name.canonical.rfind("hugging_face.", 0) != 0;
    out += cat("| `", name.name, "` | ", native ? cat("`", name.canonical, "`") : "", " | ", cell(name.effect),
               name.v4 ? cat(name.effect.empty() ? "" : "; ", "name of Hugging Face v4") : "", " |\n");
  }
  out += "\nAccepted only with the value that asks for nothing (or null):\n\n| name | accepted | why |\n|---|---|---|\n";
  for (const auto& name : unavailable_names()) {
    std::vector<std::string> off;
    for (const auto& word : name.off)
      if (!word.empty()) off.push_back(word);
    out += cat("| `", name.name, "` | ", cell(join(off, ", ")), " | ", cell(name.why), " |\n");
  }
  out +=
      "\n## ModelScope names\n\nFlags of ModelScope's training arguments, and keys of its flat files.\n\n| name | setting | remarks "
      "|\n|---|---|---|\n";
  for (const auto& name : modelscope_names()) {
    bool native = name.canonical.rfind("modelscope.", 0) != 0;
    bool without = name.canonical == "modelscope.no_effect." || name.canonical == "modelscope.off.";
    std::string remark = cat(name.canonical == "modelscope.off."         ? "must be off: "
                             : name.canonical == "modelscope.no_effect." ? "no effect: "
                                                                         : "",
                             name.effect);
    out += cat("| `", name.name, "` | ", native && !without ? cat("`", name.canonical, "`") : "", " | ", cell(remark), " |\n");
  }
  return out;
}

}  // namespace plait
