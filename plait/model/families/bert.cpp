// BERT (Devlin et al., arXiv 1810.04805) as BertForSequenceClassification.
#include "plait/model/family.h"

namespace plait {

const FamilyNames& bert_names() {
  static const FamilyNames names = [] {
    FamilyNames n;
    n.word_embedding = "bert.embeddings.word_embeddings.weight";
    n.position_embedding = "bert.embeddings.position_embeddings.weight";
    n.token_type_embedding = "bert.embeddings.token_type_embeddings.weight";
    n.embedding_norm = "bert.embeddings.LayerNorm";
    n.pooler = "bert.pooler.dense";
    n.classifier = "classifier";
    const std::string layer = "bert.encoder.layer.{}.";
    n.block.query = layer + "attention.self.query";
    n.block.key = layer + "attention.self.key";
    n.block.value = layer + "attention.self.value";
    n.block.attention_out = layer + "attention.output.dense";
    n.block.norm1 = layer + "attention.output.LayerNorm";
    n.block.up = layer + "intermediate.dense";
    n.block.down = layer + "output.dense";
    n.block.norm2 = layer + "output.LayerNorm";
    return n;
  }();
  return names;
}

}  // namespace plait
