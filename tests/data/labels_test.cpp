#include "plait/data/labels.h"

#include <gtest/gtest.h>

#include "plait/base/error.h"

namespace plait {
namespace {

using Names = std::vector<std::string>;

TEST(Labels, IntegersKeepTheirNumbers) {
  EXPECT_EQ(labels_of_training_file({"2", "0", "1"}).names, (Names{"0", "1", "2"}));
  Names twelve;
  for (int i = 11; i >= 0; --i) twelve.push_back(std::to_string(i));
  LabelMap labels = labels_of_training_file(twelve);
  EXPECT_EQ(labels.find("10"), 10);  // not "0", "1", "10", "11", "2", ... as text would sort
}

TEST(Labels, OtherTextsAreSortedBytewise) {
  EXPECT_EQ(labels_of_training_file({"b", "a", "B"}).names, (Names{"B", "a", "b"}));
  EXPECT_EQ(labels_of_training_file({"\xc3\xa9t\xc3\xa9", "zebra"}).names,
            (Names{"zebra", "\xc3\xa9t\xc3\xa9"}));  // bytes above 0x7f are large
  EXPECT_EQ(labels_of_training_file({"1", "-1"}).names, (Names{"-1", "1"}));
  EXPECT_EQ(labels_of_training_file({"1", "2", "3"}).names, (Names{"1", "2", "3"}));  // not from 0: texts
  EXPECT_EQ(labels_of_training_file({"0", "01"}).names, (Names{"0", "01"}));
}

TEST(Labels, FindByNameThenByNumber) {
  LabelMap labels = given_labels({"neg", "pos", "0"});
  EXPECT_EQ(labels.find("pos"), 1);
  EXPECT_EQ(labels.find("1"), 1);
  EXPECT_EQ(labels.find("0"), 2);  // a name comes first
  EXPECT_EQ(labels.find("3"), std::nullopt);
  EXPECT_EQ(labels.find("-1"), std::nullopt);
  EXPECT_EQ(labels.find(""), std::nullopt);
  EXPECT_EQ(labels.find("99999999999999999999"), std::nullopt);
}

TEST(Labels, GivenNamesAreDistinct) {
  EXPECT_THROW(given_labels({"a", "b", "a"}), Error);
  EXPECT_THROW(given_labels({"a", ""}), Error);
}

}  // namespace
}  // namespace plait
