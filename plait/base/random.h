// Counter-based randomness: every value is a pure function of its coordinates, so that any layout, resume or
// recomputation draws the same one. mix64 is the finaliser of splitmix64 (Steele, Lea, Flood 2014).
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

namespace plait {

constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Folds one more coordinate into a key; the order of coordinates matters.
constexpr uint64_t fold_key(uint64_t key, uint64_t coordinate) { return mix64(key ^ mix64(coordinate)); }

constexpr uint64_t name_key(std::string_view name) {  // FNV-1a, then mixed
  uint64_t h = 0xcbf29ce484222325ull;
  for (char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return mix64(h);
}

// Uniform in (0, 1): 53 bits, never 0 and never 1.
inline double uniform01(uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1.0p-53; }

// Standard normal of element `index` under `key` (Box-Muller, cosine branch).
inline double normal01(uint64_t key, uint64_t index) {
  double u = uniform01(mix64(key + 2 * index)), v = uniform01(mix64(key + 2 * index + 1));
  return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v);
}

}  // namespace plait
