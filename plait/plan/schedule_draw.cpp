#include <algorithm>
#include <cmath>
#include <cstdio>

#include "plait/base/text.h"
#include "plait/plan/schedule.h"

namespace plait {

namespace {

bool is_drawn(const TimedAction& timed) {
  ActionKind kind = timed.action.kind;
  return (kind == ActionKind::kForward || kind == ActionKind::kBackward || kind == ActionKind::kWeight) && timed.end > timed.begin;
}

// The shortest block, which decides the scale; 0 when nothing takes time.
double shortest_block(const ScheduleReport& report) {
  double shortest = 0;
  for (const auto& row : report.timeline)
    for (const TimedAction& timed : row)
      if (is_drawn(timed) && (shortest == 0 || timed.end - timed.begin < shortest)) shortest = timed.end - timed.begin;
  return shortest;
}

// 1, 2, 5, 10, ... times a power of ten: the smallest that is not below `least`.
double round_step(double least) {
  double power = std::pow(10.0, std::floor(std::log10(least)));
  for (double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  return 10 * power;
}

std::string escape_xml(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '&') out += "&amp;";
    else if (c == '"') out += "&quot;";
    else out += c;
  }
  return out;
}

std::string fixed(double value, int decimals) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", decimals, value);
  return buffer;
}

std::string short_number(double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.6g", value);
  return buffer;
}

// Chunk 0, 1, ... of a rank: from strong to pale.
const char* fill_colour(const TimedAction& timed, int64_t chunk) {
  static constexpr const char* kForward[] = {"#4c86c6", "#7ba7d9", "#a5c4e7", "#c9dcf2"};
  static constexpr const char* kBackward[] = {"#4f9d69", "#7cb893", "#a6d0b6", "#cce5d5"};
  size_t shade = static_cast<size_t>(std::min<int64_t>(chunk, 3));
  if (timed.action.kind == ActionKind::kForward) return kForward[shade];
  if (timed.action.kind == ActionKind::kBackward) return kBackward[shade];
  return "#e0a03c";
}

// Pixels of the parts of the drawing.
constexpr double kLeft = 70, kTop = 64, kRowHeight = 34, kRowGap = 6, kRight = 20;

void draw_axis(std::string& svg, double makespan, double scale, double bottom) {
  double step = round_step(std::max(44.0 / scale, makespan / 40));
  for (double t = 0; t <= makespan * (1 + 1e-9); t += step) {
    std::string x = fixed(kLeft + t * scale, 1);
    svg += cat("<line x1=\"", x, "\" y1=\"", kTop, "\" x2=\"", x, "\" y2=\"", bottom + 5, "\" stroke=\"#9aa0a6\" stroke-width=\"0.5\"/>\n");
    svg += cat("<text x=\"", x, "\" y=\"", bottom + 19, "\" text-anchor=\"middle\" font-size=\"11\">", short_number(t), "</text>\n");
  }
  svg += cat("<text x=\"", kLeft, "\" y=\"", bottom + 36, "\" font-size=\"11\" fill=\"#5f6368\">time (cost units)</text>\n");
}

void draw_legend(std::string& svg, int64_t chunks, bool weights) {
  double x = kLeft;
  auto entry = [&](const char* colour, const std::string& label) {
    svg += cat("<rect x=\"", x, "\" y=\"38\" width=\"14\" height=\"14\" fill=\"", colour, "\" stroke=\"#333\" stroke-width=\"0.5\"/>",
               "<text x=\"", x + 19, "\" y=\"49\" font-size=\"12\">", label, "</text>\n");
    x += 34 + 7.0 * label.size();
  };
  TimedAction forward, backward;
  backward.action.kind = ActionKind::kBackward;
  for (int64_t chunk = 0; chunk < std::min<int64_t>(chunks, 4); ++chunk) {
    std::string suffix = chunks == 1 ? "" : cat(" chunk ", chunk, chunk == 3 && chunks > 4 ? " and up" : "");
    entry(fill_colour(forward, chunk), "forward" + suffix);
    entry(fill_colour(backward, chunk), "backward" + suffix);
  }
  if (weights) entry("#e0a03c", "weight gradient");
  entry("#eceff1", "idle");
}

}  // namespace

std::string draw_text(const ScheduleReport& report) {
  double shortest = shortest_block(report);
  if (shortest == 0) return "";
  bool virtual_stages = false;
  size_t widest = 0;
  auto label_of = [&](const Action& action) {
    return virtual_stages ? to_string(action) : to_string(action).substr(cat(action.stage).size());
  };
  for (size_t rank = 0; rank < report.timeline.size(); ++rank)
    for (const TimedAction& timed : report.timeline[rank]) virtual_stages |= timed.action.stage != static_cast<int64_t>(rank);
  for (const auto& row : report.timeline)
    for (const TimedAction& timed : row)
      if (is_drawn(timed)) widest = std::max(widest, label_of(timed.action).size());
  // A very uneven cost would make lines of any length: labels are cut then.
  double columns = std::min((widest + 1) / shortest, 2000 / report.makespan);
  auto column_of = [&](double time) { return static_cast<size_t>(std::lround(time * columns)); };

  std::string text;
  std::string margin = cat("rank ", report.timeline.size() - 1, " ");
  for (size_t rank = 0; rank < report.timeline.size(); ++rank) {
    std::string line(column_of(report.makespan), ' ');
    for (const TimedAction& timed : report.timeline[rank]) {
      if (!is_drawn(timed)) continue;
      size_t begin = column_of(timed.begin), end = column_of(timed.end);
      if (end <= begin) continue;
      std::string block = label_of(timed.action);
      block.resize(end - begin - 1, '-');
      line.replace(begin, block.size(), block);
    }
    std::string head = cat("rank ", rank);
    head.resize(margin.size(), ' ');
    text += head + "|" + line + "|\n";
  }
  std::string axis(margin.size() + 1, ' ');
  double step = round_step(6 / columns);
  for (double t = 0; t <= report.makespan * (1 + 1e-9); t += step) {
    axis.resize(margin.size() + 1 + column_of(t), ' ');
    axis += short_number(t);
  }
  axis.replace(0, 4, "time");
  return text + axis + "\n";
}

std::string draw_svg(const Schedule& schedule, const ScheduleReport& report) {
  double shortest = shortest_block(report), makespan = std::max(report.makespan, shortest);
  double scale = shortest == 0 ? 1 : std::min(24 / shortest, 6000 / makespan);
  int64_t ranks = report.timeline.size(), chunks = std::max<int64_t>(1, schedule.num_stages / std::max<int64_t>(1, schedule.pp_size));
  double bottom = kTop + ranks * (kRowHeight + kRowGap);
  double width = std::max(kLeft + makespan * scale + kRight, 640.0), height = bottom + 46;
  std::string title = cat(schedule.name, ": ", schedule.pp_size, " pipeline ranks",
                          chunks > 1 ? cat(" x ", chunks, " stages") : std::string(), ", ", schedule.num_micro_batches,
                          " micro-batches, bubble ", fixed(100 * report.bubble, 1), " %, length ", short_number(report.makespan));
  std::string svg = cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", fixed(width, 0), "\" height=\"", fixed(height, 0),
                        "\" viewBox=\"0 0 ", fixed(width, 0), " ", fixed(height, 0), "\" font-family=\"sans-serif\">\n",
                        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n<title>", escape_xml(title), "</title>\n", "<text x=\"",
                        kLeft, "\" y=\"25\" font-size=\"16\" font-weight=\"bold\">", escape_xml(title), "</text>\n");
  bool weights = false;
  std::string blocks;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    double y = kTop + rank * (kRowHeight + kRowGap);
    svg += cat("<text x=\"", kLeft - 10, "\" y=\"", y + 22, "\" text-anchor=\"end\" font-size=\"13\">rank ", rank, "</text>\n<rect x=\"",
               kLeft, "\" y=\"", y, "\" width=\"", fixed(makespan * scale, 1), "\" height=\"", kRowHeight, "\" fill=\"#eceff1\"/>\n");
    for (const TimedAction& timed : report.timeline[rank]) {
      if (!is_drawn(timed)) continue;
      weights = weights || timed.action.kind == ActionKind::kWeight;
      double x = kLeft + timed.begin * scale, block_width = (timed.end - timed.begin) * scale;
      int64_t chunk = schedule.chunk_of_stage(timed.action.stage);
      std::string label = cat(timed.action.micro_batch);
      blocks += cat("<rect x=\"", fixed(x, 1), "\" y=\"", y, "\" width=\"", fixed(block_width, 1), "\" height=\"", kRowHeight, "\" fill=\"",
                    fill_colour(timed, chunk), "\" stroke=\"#333\" stroke-width=\"0.6\"><title>", to_string(timed.action), "  ",
                    short_number(timed.begin), " to ", short_number(timed.end), "</title></rect>\n");
      if (block_width < 8.0 * label.size()) continue;  // a number that would not fit is worse than none
      blocks += cat("<text x=\"", fixed(x + block_width / 2, 1), "\" y=\"", y + 22, "\" text-anchor=\"middle\" font-size=\"13\" fill=\"",
                    chunk < 1 ? "#ffffff" : "#1c2a38", "\">", label, "</text>\n");
    }
  }
  if (makespan > 0) draw_axis(svg, makespan, scale, bottom);
  draw_legend(svg, chunks, weights);
  return svg + blocks + "</svg>\n";
}

}  // namespace plait
