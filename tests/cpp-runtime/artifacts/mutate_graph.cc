// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/cpp-runtime/artifacts/mutate_graph.cc
 * \brief Damages graphs: values, sizes, ranks, types, edges, nodes.
 */
#include <algorithm>
#include <functional>
#include <utility>

#include "mutate.h"
#include "words.h"

namespace artifacts {

namespace {

/*! \brief A value inside of another one. */
struct Place {
  Json* parent;
  size_t index;
  /*! \brief The place of the parent, or -1. */
  int up;

  Json& value() const { return parent->items[index]; }
};

class Mutator {
 public:
  Mutator(const Dictionary& dictionary, Random* random, Json* graph)
      : dictionary_(dictionary), random_(*random), graph_(*graph) {}

  std::string Run() {
    const int rounds = random_.Chance(60) ? 1 : random_.Chance(60) ? 2 : 3;
    for (int i = 0; i < rounds; ++i) MutateOnce();
    // Most shall come further than to what looks at the tables.
    if (random_.Chance(80)) MendTables();
    return done_;
  }

 private:
  void MutateOnce() {
    using Action = void (Mutator::*)();
    static const std::pair<int, Action> kActions[] = {
        {22, &Mutator::TweakScalar},    {14, &Mutator::PutKnownValue}, {10, &Mutator::ChangeTree},
        {12, &Mutator::SizeEverywhere}, {6, &Mutator::ChangeRank},     {6, &Mutator::OpenDimension},
        {5, &Mutator::TypeEverywhere},  {7, &Mutator::Rewire},         {4, &Mutator::AddAttribute},
        {3, &Mutator::AppendNode},      {3, &Mutator::RenameOp},       {8, &Mutator::AppendLegal}};
    int at = static_cast<int>(random_.Below(100));
    for (const auto& [weight, action] : kActions) {
      if ((at -= weight) < 0) return (this->*action)();
    }
  }

  void Say(const std::string& text) { done_ += (done_.empty() ? "" : "; ") + text; }

  /*! \brief Whether it is still one: an earlier change may have put anything there. */
  static bool IsList(const Json* json) {
    return json != nullptr && json->kind == Json::Kind::kArray;
  }

  Json* Nodes() {
    Json* nodes = graph_.Find("nodes");
    return IsList(nodes) && !nodes->items.empty() ? nodes : nullptr;
  }

  static Json* AttrsOf(Json* node) {
    Json* attrs = node->Find("attrs");
    return attrs != nullptr && attrs->kind == Json::Kind::kObject ? attrs : nullptr;
  }

  void Collect(Json* json, int up) {
    for (size_t i = 0; i < json->items.size(); ++i) {
      places_.push_back({json, i, up});
      Collect(&json->items[i], static_cast<int>(places_.size()) - 1);
    }
  }

  /*! \brief Look at one node, or at times at the whole graph. Returns what to call it. */
  std::string LookAround() {
    places_.clear();
    Json* nodes = Nodes();
    if (nodes == nullptr || random_.Chance(12)) {
      Collect(&graph_, -1);
      return "";
    }
    const size_t id = random_.Below(nodes->items.size());
    Collect(&nodes->items[id], -1);
    return "nodes[" + std::to_string(id) + "]";
  }

  static std::string StepOf(const Place& place) {
    if (place.parent->kind == Json::Kind::kObject) return "." + place.parent->keys[place.index];
    return "[" + std::to_string(place.index) + "]";
  }

  std::string PathOf(const Place& place) const {
    return (place.up < 0 ? "" : PathOf(places_[place.up])) + StepOf(place);
  }

  /*! \brief The key that a value stands below. */
  std::string KeyOf(const Place& place) const {
    if (place.parent->kind == Json::Kind::kObject) return place.parent->keys[place.index];
    return place.up < 0 ? "" : KeyOf(places_[place.up]);
  }

  void Put(const std::string& where, const Place& place, Json value) {
    Say(where + PathOf(place) + " = " + ToText(value).substr(0, 200));
    place.value() = std::move(value);
  }

  void TweakScalar() {
    const std::string where = LookAround();
    std::vector<Place> scalars;
    for (const Place& place : places_) {
      if (place.value().IsScalar()) scalars.push_back(place);
    }
    if (scalars.empty()) return;
    const Place place = random_.Pick(scalars);
    Json value = place.value();
    if (!OtherWord(&random_, &value.text)) {
      const Json& known = dictionary_.AnyValue(KeyOf(place), &random_);
      value = known.IsScalar() ? known : Json::Text(AnyExtreme(&random_));
    }
    // A number of version 2 becomes one that JSON has, or a string.
    const bool is_number =
        IsNumber(value.text) && value.text.find_first_of("ni") == value.text.npos;
    if (value.kind == Json::Kind::kLiteral && !is_number) value.kind = Json::Kind::kText;
    Put(where, place, value);
  }

  void PutKnownValue() {
    const std::string where = LookAround();
    for (int attempt = 0; attempt < 20 && !places_.empty(); ++attempt) {
      const Place place = random_.Pick(places_);
      if (place.parent->kind != Json::Kind::kObject) continue;
      return Put(where, place, dictionary_.AnyValue(KeyOf(place), &random_));
    }
  }

  void ChangeTree() {
    const std::string where = LookAround();
    if (places_.empty()) return;
    const Place place = random_.Pick(places_);
    Json& parent = *place.parent;
    const bool is_list = parent.kind == Json::Kind::kArray;
    switch (random_.Below(5)) {
      case 0:
        Say("remove " + where + PathOf(place));
        if (!is_list) parent.keys.erase(parent.keys.begin() + place.index);
        parent.items.erase(parent.items.begin() + place.index);
        return;
      case 1: {
        Say("repeat " + where + PathOf(place));
        const Json copy = place.value();
        const std::string key = is_list ? "" : parent.keys[place.index];
        const int times = random_.Chance(90) ? 1 : 70;
        parent.items.insert(parent.items.begin() + place.index, times, copy);
        if (!is_list) parent.keys.insert(parent.keys.begin() + place.index, times, key);
        return;
      }
      case 2: {
        const size_t other = random_.Below(parent.items.size());
        Say("exchange " + where + PathOf(place) + " and its sibling " + std::to_string(other));
        std::swap(parent.items[place.index], parent.items[other]);
        return;
      }
      case 3: {
        Json copy = random_.Pick(places_).value();
        return Put(where, place, std::move(copy));
      }
      default: {
        Json value;
        ParseJson(AnyJson(&random_), &value);
        return Put(where, place, std::move(value));
      }
    }
  }

  /*! \brief Do something with each shape of the graph, which is a list of sizes. */
  void ForEachShape(const std::function<void(Json* node, Json* shape)>& function) {
    Json* nodes = Nodes();
    if (nodes == nullptr) return;
    for (Json& node : nodes->items) {
      Json* shapes = OutputsOf(&node, "shape");
      if (shapes == nullptr) continue;
      for (Json& shape : shapes->items) {
        if (IsList(&shape)) function(&node, &shape);
      }
    }
  }

  /*! \brief A size that a shape has, or "". */
  std::string AnySize() {
    std::vector<std::string> sizes;
    ForEachShape([&](Json*, Json* shape) {
      for (const Json& size : shape->items) sizes.push_back(size.text);
    });
    return sizes.empty() ? "" : random_.Pick(sizes);
  }

  void SizeEverywhere() {
    const std::string from = AnySize();
    if (from.empty()) return;
    const std::string to = OtherNumber(from, &random_);
    const bool has_attrs = random_.Chance(50);
    Say("size " + from + " is " + to + (has_attrs ? ", in attributes, too" : ""));
    ForEachShape([&](Json*, Json* shape) {
      for (Json& size : shape->items) {
        if (size.text == from) size.text = to;
      }
    });
    if (!has_attrs) return;
    places_.clear();
    Collect(Nodes(), -1);
    for (const Place& place : places_) {
      Json& value = place.value();
      // The numbers of inputs are none of sizes.
      if (value.IsScalar() && value.text == from && KeyOf(place) != "inputs") value.text = to;
    }
  }

  void ChangeRank() {
    std::vector<std::string> shapes;
    ForEachShape([&](Json*, Json* shape) { shapes.push_back(ToText(*shape)); });
    if (shapes.empty()) return;
    const std::string from = random_.Pick(shapes);
    const bool everywhere = random_.Chance(60), grows = random_.Chance(50);
    const size_t at = random_.Next();
    const size_t only = random_.Below(shapes.size());
    size_t number = 0;
    ForEachShape([&](Json*, Json* shape) {
      const bool is_it = everywhere ? ToText(*shape) == from : number == only;
      ++number;
      auto& sizes = shape->items;
      if (!is_it || (sizes.empty() && !grows)) return;
      if (grows) {
        sizes.insert(sizes.begin() + at % (sizes.size() + 1), Json::Literal("1"));
      } else {
        sizes.erase(sizes.begin() + at % sizes.size());
      }
    });
    Say("rank of " + (everywhere ? "all " + from : "shape " + std::to_string(only)) +
        (grows ? " + 1" : " - 1"));
  }

  void OpenDimension() {
    const std::string size = AnySize();
    if (size.empty()) return;
    const bool first_only = random_.Chance(50);
    Say("size " + size + " is open" + (first_only ? " where it comes first" : ""));
    ForEachShape([&](Json* node, Json* shape) {
      const Json* kind = node->Find("op");
      if (kind != nullptr && kind->text == "const" && !random_.Chance(10)) return;
      for (size_t i = 0; i < shape->items.size() && (i == 0 || !first_only); ++i) {
        if (shape->items[i].text == size) shape->items[i].text = "-1";
      }
    });
  }

  void TypeEverywhere() {
    Json* nodes = Nodes();
    if (nodes == nullptr) return;
    places_.clear();
    Collect(nodes, -1);
    std::vector<std::string> types;
    for (const Place& place : places_) {
      if (IsDType(place.value().text)) types.push_back(place.value().text);
    }
    if (types.empty()) return;
    const std::string from = random_.Pick(types), to = AnyDType(&random_);
    Say("type " + from + " is " + to);
    for (const Place& place : places_) {
      if (place.value().text == from) place.value().text = to;
    }
  }

  void Rewire() {
    Json* nodes = Nodes();
    if (nodes == nullptr) return;
    const auto index = [&]() { return std::to_string(random_.Below(nodes->items.size() + 1)); };
    Json entry = Json::Array({Json::Literal(index()), Json::Literal(random_.Chance(80) ? "0" : "1"),
                              Json::Literal("0")});
    if (random_.Chance(5)) entry.items[0].text = AnyExtreme(&random_);
    const size_t id = random_.Below(nodes->items.size());
    Json* list = random_.Chance(15) ? graph_.Find("heads") : nodes->items[id].Find("inputs");
    if (!IsList(list)) return;
    const size_t at = random_.Below(list->items.size() + 1);
    Say("node " + std::to_string(id) + " reads " + ToText(entry) + " as " + std::to_string(at) +
        ". input (or a head does)");
    if (at == list->items.size()) list->items.emplace_back();
    list->items[at] = entry;
  }

  void AddAttribute() {
    Json* nodes = Nodes();
    if (nodes == nullptr || dictionary_.empty()) return;
    const size_t id = random_.Below(nodes->items.size());
    Json* attrs = AttrsOf(&nodes->items[id]);
    if (attrs == nullptr) return;
    const std::string key = dictionary_.AnyKey(&random_);
    const Json& value = dictionary_.AnyValue(key, &random_);
    // Among the attributes of the node, or of what is fused to it.
    places_.clear();
    Collect(attrs, -1);
    std::vector<Place> objects;
    for (const Place& place : places_) {
      if (place.value().kind == Json::Kind::kObject) objects.push_back(place);
    }
    std::string where = ".attrs";
    if (!objects.empty() && random_.Chance(50)) {
      const Place place = random_.Pick(objects);
      where += PathOf(place);
      attrs = &place.value();
    }
    Say("nodes[" + std::to_string(id) + "]" + where + "." + key +
        " := " + ToText(value).substr(0, 200));
    attrs->Set(key, value);
  }

  void AppendNode() {
    Json* nodes = Nodes();
    if (nodes == nullptr) return;
    const size_t id = random_.Below(nodes->items.size());
    const Json copy = nodes->items[id];
    nodes->items.push_back(copy);
    const std::string last = std::to_string(nodes->items.size() - 1);
    Say("node " + last + " is a copy of " + std::to_string(id) + " and an output");
    Json* heads = graph_.Find("heads");
    if (IsList(heads)) {
      heads->items.push_back(
          Json::Array({Json::Literal(last), Json::Literal("0"), Json::Literal("0")}));
    }
  }

  void AppendLegal() { Say(AppendLegalOp(&random_, &graph_)); }

  void RenameOp() {
    Json* nodes = Nodes();
    if (nodes == nullptr) return;
    const size_t id = random_.Below(nodes->items.size());
    Json* attrs = AttrsOf(&nodes->items[id]);
    Json* post_ops = attrs == nullptr ? nullptr : attrs->Find("post_ops");
    if (IsList(post_ops) && !post_ops->items.empty() && random_.Chance(40)) {
      Json& post_op = post_ops->items[random_.Below(post_ops->items.size())];
      post_op.Set("op", dictionary_.AnyValue(random_.Chance(50) ? "op" : "root_op", &random_));
      return Say("node " + std::to_string(id) + " has the post-op " + ToText(post_op));
    }
    Json* root = attrs == nullptr ? nullptr : attrs->Find("root_op");
    Json* name = root == nullptr ? nodes->items[id].Find("name") : root;
    if (name == nullptr) return;
    *name = dictionary_.AnyValue(root == nullptr ? "name" : "root_op", &random_);
    Say("node " + std::to_string(id) + " is " + ToText(*name));
  }

  /*! \brief Bring counts and tables in line with the nodes. */
  void MendTables() {
    Json* nodes = Nodes();
    if (nodes == nullptr) return;
    Json arguments = Json::Array({}), row = Json::Array({Json::Literal("0")});
    size_t entries = 0;
    for (size_t id = 0; id < nodes->items.size(); ++id) {
      Json& node = nodes->items[id];
      Json* attrs = AttrsOf(&node);
      const Json* inputs = node.Find("inputs");
      const Json* shapes = OutputsOf(node, "shape");
      const size_t outputs = shapes != nullptr ? shapes->items.size() : 1;
      if (inputs != nullptr && attrs != nullptr && !IsTyped(graph_)) {
        attrs->Set("num_inputs", Json::Text(std::to_string(inputs->items.size())));
        attrs->Set("num_outputs", Json::Text(std::to_string(outputs)));
      }
      const Json* kind = node.Find("op");
      if (kind == nullptr || kind->text != "kernel") {
        arguments.items.push_back(Json::Literal(std::to_string(id)));
      }
      row.items.push_back(Json::Literal(std::to_string(entries += outputs)));
    }
    graph_.Set("arg_nodes", arguments);
    graph_.Set("node_row_ptr", row);
  }

  const Dictionary& dictionary_;
  Random& random_;
  Json& graph_;
  std::string done_;
  std::vector<Place> places_;
};

}  // namespace

std::string MutateGraph(const Dictionary& dictionary, Random* random, Json* graph) {
  return Mutator(dictionary, random, graph).Run();
}

}  // namespace artifacts
