"""The tree of subjects with wildcards. Literal subjects are not in it.

A node stands for the tokens from the root to it; what hangs at it is a set of _subs.pxd. All edges
to literal tokens are one table keyed by (parent, token), so that a node is small whatever number
of children it has. A node that holds nothing is removed, and its parents with it as long as they
hold nothing.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy

from server.core._subject cimport token_end
from server.core._subs cimport Sub, any_of, set_free
from server.core._table cimport (
    HashSeed,
    Slot,
    Table,
    hash_bytes,
    hash_fold,
    table_drop,
    table_first,
    table_free,
    table_next,
    table_put,
)


# The token stands behind the struct.
cdef struct Node:
    Node* parent
    Node* star
    Node* full
    void* subs  # a set: NULL, a Sub*, or a Home* with its lowest bit set
    uint64_t hash  # of the path from the root
    uint32_t children  # with literal tokens
    uint32_t token_len  # 0: `*` or `>`


# Where a walk goes on later: `frames` has one for each level of the tree.
cdef struct Frame:
    Node* node
    size_t at


cdef struct WildTree:
    HashSeed seed
    Table edges  # (parent, token) -> Node
    Node* root
    Frame* frames
    size_t frames_max


# -1: no memory.
cdef inline int tree_start(WildTree* tree, HashSeed seed) noexcept nogil:
    tree.seed = seed
    tree.root = <Node*> calloc(1, sizeof(Node))
    if tree.root == NULL:
        return -1
    tree.root.hash = seed.one
    return 0


cdef inline void tree_free(WildTree* tree) noexcept nogil:
    cdef size_t at
    cdef Node* node
    for at in range(tree.edges.mask + 1 if tree.edges.slots != NULL else 0):
        node = <Node*> tree.edges.slots[at].item
        if node != NULL:
            set_free(node.subs)
            free(node)
    table_free(&tree.edges)
    free(tree.frames)
    free(tree.root)


# One of the subscriptions at a node, whose subject is the node's.
cdef inline Sub* node_sub(Node* node) noexcept nogil:
    return NULL if node == NULL else any_of(node.subs)


cdef inline Node* tree_child(
    WildTree* tree, Node* parent, const char* token, size_t length
) noexcept nogil:
    cdef uint64_t h = hash_fold(parent.hash ^ hash_bytes(token, length, tree.seed), tree.seed.two)
    cdef Slot* slot = table_first(&tree.edges, h)
    cdef Node* node
    while slot != NULL and slot.item != NULL:
        node = <Node*> slot.item
        if (
            slot.hash == h
            and node.parent == parent
            and node.token_len == length
            and memcmp(<char*> (node + 1), token, length) == 0
        ):
            return node
        slot = table_next(&tree.edges, slot)
    return NULL


cdef inline Node* tree_step(
    WildTree* tree, Node* node, const char* token, size_t length
) noexcept nogil:
    if length == 1 and token[0] == c"*":
        return node.star
    if length == 1 and token[0] == c">":
        return node.full
    return tree_child(tree, node, token, length)


# The node of a subject, or NULL.
cdef inline Node* tree_reach(WildTree* tree, const char* subject, size_t length) noexcept nogil:
    cdef Node* node = tree.root
    cdef size_t at = 0, end
    while node != NULL:
        end = token_end(subject, length, at)
        node = tree_step(tree, node, subject + at, end - at)
        if end == length:
            return node
        at = end + 1
    return NULL


# The node of a subject, made with those on the way if needed. NULL: no memory, nothing is left.
cdef inline Node* tree_grow(WildTree* tree, const char* subject, size_t length) noexcept nogil:
    cdef Node* node = tree.root
    cdef Node* below
    cdef Frame* frames
    cdef size_t at = 0, end, depth = 0
    while True:
        end = token_end(subject, length, at)
        below = tree_step(tree, node, subject + at, end - at)
        if below == NULL:
            below = tree_sprout(tree, node, subject + at, end - at)
        depth += 1
        if below != NULL and depth >= tree.frames_max:
            frames = <Frame*> realloc(tree.frames, (depth * 2 + 8) * sizeof(Frame))
            if frames != NULL:
                tree.frames = frames
                tree.frames_max = depth * 2 + 8
            else:
                node = below
                below = NULL
        if below == NULL:
            tree_prune(tree, node)
            return NULL
        node = below
        if end == length:
            return node
        at = end + 1


# A new node below `parent`; NULL: no memory.
cdef inline Node* tree_sprout(
    WildTree* tree, Node* parent, const char* token, size_t length
) noexcept nogil:
    cdef bint wild = length == 1 and (token[0] == c"*" or token[0] == c">")
    cdef Node* node = <Node*> calloc(1, sizeof(Node) + length)
    if node == NULL:
        return NULL
    node.parent = parent
    node.token_len = 0 if wild else <uint32_t> length
    memcpy(<char*> (node + 1), token, length)
    node.hash = hash_fold(parent.hash ^ hash_bytes(token, length, tree.seed), tree.seed.two)
    if table_put(&tree.edges, node.hash, node):
        free(node)
        return NULL
    if not wild:
        parent.children += 1
    elif token[0] == c"*":
        parent.star = node
    else:
        parent.full = node
    return node


# Removes a node that holds nothing, and then its parents as long as they hold nothing.
cdef inline void tree_prune(WildTree* tree, Node* node) noexcept nogil:
    cdef Node* parent
    cdef Slot* slot
    while (
        node != tree.root
        and node.subs == NULL
        and node.children == 0
        and node.star == NULL
        and node.full == NULL
    ):
        parent = node.parent
        slot = table_first(&tree.edges, node.hash)
        while slot.item != node:
            slot = table_next(&tree.edges, slot)
        table_drop(&tree.edges, slot)
        if parent.star == node:
            parent.star = NULL
        elif parent.full == node:
            parent.full = NULL
        else:
            parent.children -= 1
        free(node)
        node = parent
