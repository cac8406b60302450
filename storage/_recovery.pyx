# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Recovery of one stream: its checkpoint, else its blocks; then what the log has beyond that.

Contract: DESIGN.md, "What the file store asks of the logic at recovery". `load_state` or `rebuild`
first, then `replay_frame` for each frame in order, then `end_replay`. What is missing after that
is in the home's `lost`, and `damage` says why.
"""
import os

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, malloc
from libc.string cimport memcmp, memcpy

from storage.fs import read_if_there
from storage.losses import joined_ranges, touches

from storage._block cimport (
    BLOCK_CUT, BLOCK_ENCRYPTED, BLOCK_FRAMED, BLOCK_HAS_DEAD, BLOCK_HEAD, BLOCK_ROW_SIZE, BLOCK_SEALED, BLOCK_UNREADABLE, Block, check_head,
    find_slot, free_block, free_block_file, load_row, load_trailer, new_block_file, slot_at_or_after)
from storage._checkpoint cimport STATE_HEAD
from storage._checkpoint import state_context
from storage._codec cimport (
    KIND_ERASED, KIND_MESSAGE, RECORD_FIXED, RECORD_HEAD, check_record, file_counted_size, load16, load32, load64,
    view_record, xxh64)
from storage._commitlog cimport (
    FRAME_BLOCK, FRAME_CUT, FRAME_DROP, FRAME_ERASE, FRAME_FORGET, FRAME_RECORDS)
from storage._erasing cimport finish_all_erasures, note_erasure
from storage._fs cimport FileMap, map_file
from storage._record cimport Record, RecordIndexer
from storage._replay cimport Frame


def claimed_index(path: str) -> int:
    """The frame index in a state's header, not checked: which of two to try first."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1
    try:
        return int.from_bytes(os.pread(fd, 8, 24), "little")
    finally:
        os.close(fd)


cdef int load_state(BlockHome home) except -1:
    """Take the newer of the two states that holds; False: there is none, and nothing changed."""
    paths = [f"{home.path}/state.a", f"{home.path}/state.b"]
    paths.sort(key=claimed_index, reverse=True)
    for path in paths:
        content = read_if_there(path)
        if state_holds(home, content):
            take_state(home, content)
            return True
        if content:
            home.damage.append(f"{path}: does not hold")
    return False


cdef int state_holds(BlockHome home, bytes content) except -1:
    cdef const char* at = content
    cdef size_t size = len(content)
    return (size >= STATE_HEAD + 8 and memcmp(at, b"MARTSTA1", 8) == 0
            and xxh64(at, size - 8, home.salt) == load64(at + size - 8)
            and load64(at + 16) == home.group and load16(at + 8) <= 2)


cdef int take_state(BlockHome home, bytes content) except -1:
    cdef const char* at = content
    cdef const char* tail
    cdef size_t index
    cdef Block* block
    home.log_group.resume(load64(at + 24))
    home.checkpoint_index = load64(at + 24)
    home.floor = load64(at + 32)
    home.last_seq = load64(at + 40)
    home.next_number = load64(at + 48)
    home.sealed_below = load64(at + 80) if load64(at + 80) else home.next_number
    home.last_checksum = load64(at + 56)
    home.block_room = home.block_count = load32(at + 64)
    home.blocks = <Block**>calloc(home.block_room or 1, sizeof(Block*))
    tail = at + STATE_HEAD + home.block_count * BLOCK_ROW_SIZE
    for index in range(home.block_count):
        block = <Block*>calloc(1, sizeof(Block))
        home.blocks[index] = block
        load_row(at + STATE_HEAD + index * BLOCK_ROW_SIZE, block)
        if block.flags & BLOCK_HAS_DEAD:
            block.flags &= ~<uint32_t>BLOCK_HAS_DEAD
            block.dead_room = (block.slots + 7) // 8
            block.dead_bits = <uint8_t*>malloc(block.dead_room)
            memcpy(block.dead_bits, tail, block.dead_room)
            tail += block.dead_room
        if block.number == load64(at + 80):
            resume_active(home, block)
    for index in range(load32(at + 88)):
        home.lost.append([load64(tail), load64(tail + 8)])
        tail += 16
    if load32(at + 92):
        home.has_snapshot = True
        home.snapshot = tail[:load64(at + 72)]
        if load32(at + 96):
            home.snapshot = open_snapshot(home, load32(at + 96))
    return 0


cdef bytes open_snapshot(BlockHome home, int cipher):
    """The index snapshot decrypted; None: it is made anew from the records."""
    if home.key is None:
        return None
    return home.key.decrypt(cipher, home.snapshot, state_context(home.group, home.log_group.index))


cdef int resume_active(BlockHome home, Block* block) except -1:
    """Append to this block again; its index is read when it is needed."""
    home.active = block
    block.file = new_block_file(home.block_path(block.number), home.path, &home.shop.open_files, block,
                                home.group, home.salt, block.prior_checksum)
    block.file.made = block.data_end > BLOCK_HEAD
    return 0


cdef int begin_anew(BlockHome home, uint64_t first_index) except -1:
    """Without a checkpoint: from the log, when it has all; else from the blocks.

    When it has nothing, blocks may be those of a first batch that it never got, or all there is.
    """
    if first_index == 1:
        return 0
    blocks = sorted(name for name in os.listdir(home.path) if name.endswith(".blk"))
    return rebuild(home, max(first_index, <uint64_t>1) - 1, blocks)


cdef int rebuild(BlockHome home, uint64_t index, list blocks) except -1:
    """Without a state: read every block; the log goes on behind frame `index`.

    Which messages had been deleted before that is not known any more.
    """
    cdef list refused = []
    home.log_group.resume(index)
    for name in blocks:
        rebuild_block(home, int(name.removesuffix(".blk"), 16), f"{home.path}/{name}", refused)
    if home.block_count:
        home.damage.append(f"{home.path}: state does not hold, read again from the blocks")


cdef int rebuild_block(BlockHome home, uint64_t number, str path, list refused) except -1:
    """Add one block from its file, by its footer or record by record."""
    cdef Block* block
    cdef FileMap file = map_file(path)
    cdef uint32_t index_start
    cdef uint64_t first_seq
    home.next_number = max(home.next_number, number + 1)
    if not check_head(file.data, file.size, home.group, number) or load64(file.data + 48) != home.salt:
        home.damage.append(f"{path}: header does not hold, or is that of another block")
        refused.append(number)
        return 0
    first_seq = load64(file.data + 32)
    follow_chain(home, number, first_seq, load64(file.data + 40), refused)
    home.open_block(max(first_seq, home.last_seq + 1), 0)
    block = home.active
    home.active = NULL
    home.next_number = max(home.next_number, number + 1)
    free_block_file(block.file)
    block.file = NULL
    block.index_owned = False
    block.number = number
    block.flags = BLOCK_SEALED
    block.prior_checksum = load64(file.data + 40)
    if load_trailer(file.data, file.size, home.group, home.salt, block, &index_start):
        block.written = block.data_end
    else:
        block.data_end = block.written = 0xFFFFFFFF if load16(file.data + 10) & 1 else <uint32_t>file.size
        block.generation = load32(file.data + 12)
        block.last_seq = 0xFFFFFFFFFFFFFFFF
        rescan(home, block)
    if block.slots == 0:
        home.block_count -= 1
        home.let_go_map(block)
        free_block(block)
        return 0
    home.last_seq = block.last_seq
    home.last_checksum = block.last_checksum
    if home.floor <= 1 and home.block_count == 1:
        home.floor = block.first_seq
    return 0


cdef int follow_chain(BlockHome home, uint64_t number, uint64_t first_seq, uint64_t prior, list refused) except -1:
    """Before block `number` is added: end the one before where this one goes on, and tell what is missing between."""
    cdef Block* before
    cdef const char* last = NULL
    while home.block_count and home.blocks[home.block_count - 1].first_seq >= first_seq:
        leave_out_last(home)            # taken back before this block began
    if home.block_count == 0:
        return 0
    before = home.blocks[home.block_count - 1]
    if (before.last_checksum != prior or before.last_seq >= first_seq) and home.need_index(before):
        last = end_where_cut(home, before, first_seq, prior)
    home.last_seq, home.last_checksum = before.last_seq, before.last_checksum
    if before.last_checksum == prior or (last != NULL and last[4] == KIND_ERASED):
        return 0
    if before.flags & BLOCK_FRAMED and before.index_owned and number == before.number + 1:
        return 0                # what its last record was before it was encrypted, only its footer had
    between = f", from sequence {before.last_seq + 1} to {first_seq - 1}" if before.last_seq + 1 < first_seq else ""
    if number == before.number + 1 or any(other > before.number for other in refused):
        home.note_lost(before.last_seq + 1, first_seq - 1,
                       f"{home.block_path(number)}: does not go on where the block before ends{between}")
    elif between:
        home.damage.append(f"{home.path}: blocks {before.number + 1} to {number - 1} are deleted or lost{between}")
    return 0


cdef int leave_out_last(BlockHome home) except -1:
    """Out of the table; its file stays, for whoever wants to look."""
    cdef Block* block = home.blocks[home.block_count - 1]
    home.damage.append(f"{home.block_path(block.number)}: left out, a later block has its sequences")
    home.block_count -= 1
    home.let_go_map(block)
    free_block(block)
    return 0


cdef const char* end_where_cut(BlockHome home, Block* before, uint64_t first_seq, uint64_t prior) except? NULL:
    """Of a block behind which another begins: cut it behind the record with this checksum, or else below
    `first_seq`. The record that is its last one then; NULL: none."""
    cdef uint32_t slot = before.slots
    cdef const char* at = NULL
    cdef Record record
    while slot:
        at = home.locate(before, slot - 1) if before.offsets[slot - 1] else NULL
        if at != NULL and load64(at + load32(at) - 8) == prior:
            view_record(at, &record)
            home.shorten(before, slot, min(record.seq + max(record.skip_count, <uint64_t>1), first_seq) - 1)
            return at
        slot -= 1
    if before.last_seq >= first_seq:
        home.shorten(before, <uint32_t>slot_at_or_after(before, first_seq), first_seq - 1)
    slot = before.slots
    while slot and before.offsets[slot - 1] == 0:
        slot -= 1
    return home.locate(before, slot - 1) if slot else NULL


cdef int rescan(BlockHome home, Block* block) except -1:
    """Index a block whose end is not known: everything in it that holds."""
    cdef uint32_t slot
    cdef Record record
    cdef const char* at
    cdef uint32_t end = BLOCK_HEAD
    cdef list lost = home.lost
    cdef list damage = home.damage
    home.lost, home.damage = [], []
    home.need_map(block)
    home.scan_block(block)
    block.last_seq = 0
    for slot in range(block.slots):
        at = home.locate(block, slot) if block.offsets[slot] else NULL
        if at == NULL:
            continue
        view_record(at, &record)
        block.last_seq = record.seq + (record.skip_count - 1 if record.skip_count else 0)
        block.last_checksum = load64(at + load32(at) - 8)
        end = <uint32_t>(block.offsets[slot] + load32(at))
        if record.skip_count:
            block.skips += 1
            continue
        if block.messages == 0 or record.ts_ns < block.min_ts:
            block.min_ts = record.ts_ns
        block.max_ts = max(block.max_ts, record.ts_ns)
        block.messages += 1
        block.counted += file_counted_size(&record)
        if at[4] == KIND_ERASED:
            home.mark_dead(block, slot)
    block.data_end = block.written = end
    for first, last in home.lost:
        if last <= block.last_seq:
            lost.append([first, last])
    home.lost, home.damage = lost, damage
    return 0


# -- replay ----------------------------------------------------------------------------------------

cdef int replay_frame(BlockHome home, const Frame* frame) except -1:
    """Do again what the log says, unless the checkpoint contains it. What goes on waits for its end."""
    cdef uint64_t expected = home.log_group.index + 1 + len(home.unended)
    if frame.index < expected or home.torn:
        return 0
    if frame.index != expected and frame.after_damage == 1:
        home.torn = True
        return 0
    if frame.index != expected:
        redo_unended(home)
        home.gap = True
        home.gap_seq = home.last_seq if home.checkpoint_index else 0
        salvage(home)
        home.damage.append(f"{home.path}: log frames {home.log_group.index + 1} to {frame.index - 1} are lost")
        home.log_group.resume(frame.index - 1)      # one that goes on is done later, and is no other gap
    if not frame.goes_on and not home.unended:
        return redo(home, frame)
    home.unended.append(<uintptr_t>frame)
    return 0 if frame.goes_on else redo_unended(home)


cdef int redo_unended(BlockHome home) except -1:
    cdef list frames = home.unended
    home.unended = []
    for address in frames:
        redo(home, <const Frame*><uintptr_t>address)
    return 0


cdef int drop_unended(BlockHome home, uint64_t damaged_position) except -1:
    """The log ends within what counts as a whole only. Nobody was told of it, unless its end was durable
    and is damaged: then what is left of it stays."""
    cdef const Frame* last
    if not home.unended:
        return 0
    last = <const Frame*><uintptr_t>home.unended[len(home.unended) - 1]
    if last.position < damaged_position:
        return redo_unended(home)
    home.unended = []
    home.torn = True
    return 0


cdef int redo(BlockHome home, const Frame* frame) except -1:
    cdef size_t index
    home.log_group.resume(frame.index)
    if frame.kind == FRAME_RECORDS:
        replay_records(home, frame.payload, frame.size)
    elif frame.kind == FRAME_BLOCK:
        replay_block(home, load64(frame.payload), load64(frame.payload + 8), <uint32_t>load64(frame.payload + 16))
    elif frame.kind == FRAME_FORGET:
        for index in range(frame.size // 8):
            unindex_range(home, load64(frame.payload + index * 8), load64(frame.payload + index * 8))
            home.apply_forget(load64(frame.payload + index * 8))
            home.gone.add(load64(frame.payload + index * 8))
    elif frame.kind == FRAME_ERASE:
        replay_erase(home, load64(frame.payload), load64(frame.payload + 8) if frame.size == 16 else 0)
    elif frame.kind == FRAME_DROP:
        if load64(frame.payload) > home.floor:
            unindex_range(home, home.floor, load64(frame.payload) - 1)
            home.apply_drop(load64(frame.payload))
    elif frame.kind == FRAME_CUT:
        replay_cut(home, load64(frame.payload))
    return home.flush_replayed()


cdef int replay_cut(BlockHome home, uint64_t seq) except -1:
    home.flush_replayed()
    finish_all_erasures(home)       # while the blocks have the records
    home.index_stale = True
    home.cut_index = home.log_group.index       # see `remove_dead`: another recovery may have to do this again
    home.apply_cut(seq)
    home.gone = {gone for gone in home.gone if gone <= seq}
    return 0


cdef int replay_block(BlockHome home, uint64_t number, uint64_t first_seq, uint32_t capacity) except -1:
    """Begin a block where it was begun, unless that is known from its file.

    One that begins with a sequence which is there already was begun behind a cut: its frame is one of those lost.
    """
    if number < home.next_number:
        return 0
    if home.gap and first_seq <= home.last_seq:
        replay_cut(home, first_seq - 1)
    home.seal_active()
    home.begin_block(number, first_seq, capacity)
    return 0


cdef int replay_erase(BlockHome home, uint64_t seq, uint64_t seed) except -1:
    """Erase again. An erased record has its lengths still, and the logic needs no more of it; of one that does not
    hold, because the first try was torn, nothing is sure."""
    cdef Record record
    cdef Block* block = home.find_block(seq)
    cdef bint known = home.read(seq, &record)
    if not known:
        if seq in home.gone:
            return 0                    # it came back from the log erased
        known = view_erased(home, block, seq, &record)
    if known and home.indexer is not None and not home.index_stale:
        home.indexer.unindex(&record)
    if block != NULL and seq >= home.floor and not block.flags & BLOCK_UNREADABLE:
        home.index_stale = home.index_stale or not known
        note_erasure(home, block, seq, seed)
    home.apply_forget(seq)
    home.gone.add(seq)
    return 0


cdef int view_erased(BlockHome home, Block* block, uint64_t seq, Record* out) except -1:
    """The record that was erased before: its numbers and lengths. 0: it is not there, or does not hold."""
    cdef int64_t slot
    cdef const char* at
    if block == NULL or seq < home.floor or home.need_index(block) == 0:
        return 0
    slot = find_slot(block, seq)
    at = home.locate(block, <uint32_t>slot) if slot >= 0 else NULL
    if at == NULL or at[4] != KIND_ERASED:
        return 0
    view_record(at, out)
    return 1


cdef int replay_records(BlockHome home, const char* at, uint64_t size) except -1:
    """Put the records of a frame back into the blocks, byte for byte."""
    cdef Record record
    cdef uint32_t length
    cdef bint first = True
    if size == 0:
        return 0                # the end of a whole says nothing about what was lost before it
    while size:
        length = check_record(at, size, home.salt)
        if length == 0:
            home.damage.append(f"{home.path}: a record in the log behind {home.last_seq} does not hold")
            return 0
        view_record(at, &record)
        if first and home.gap and record.seq <= home.last_seq and (
                record.seq <= home.gap_seq or has_another(home, at, record.seq)):
            replay_cut(home, record.seq - 1)        # the cut that made room for it is one of the frames lost
        if first and home.gap and record.seq > home.last_seq + 1:
            home.note_lost(home.last_seq + 1, record.seq - 1, f"{home.path}: records lost with their log frame")
        first = False
        if record.seq > home.last_seq:
            home.place(&record, length, at, load64(at + length - 8))
            if at[4] == KIND_ERASED:
                home.apply_forget(record.seq)
                home.gone.add(record.seq)
            elif home.indexer is not None and home.show(at, &record):
                home.indexer.index(&record)
        at += length
        size -= length
    home.gap = False
    return 0


cdef bint has_another(BlockHome home, const char* at, uint64_t seq) except -1:
    """Whether the block has, under the same sequence, something else than the record at `at`."""
    cdef Block* block = home.find_block(seq)
    cdef const char* other
    cdef int64_t slot
    if block == NULL or home.need_index(block) == 0:
        return False
    slot = find_slot(block, seq)
    other = home.locate(block, <uint32_t>slot) if slot >= 0 else NULL
    if other == NULL:
        return False
    if other[4] == KIND_ERASED or at[4] == KIND_ERASED:     # all of it but the kind and the body
        return memcmp(at, other, 4) != 0 or memcmp(at + 6, other + 6, RECORD_HEAD - 6) != 0
    return load64(at + load32(at) - 8) != load64(other + load32(other) - 8)


cdef int unindex_range(BlockHome home, uint64_t first, uint64_t last) except -1:
    """Tell the logic which live messages go."""
    cdef Record record
    cdef uint64_t told = 0
    cdef uint64_t seq = first
    if home.indexer is None or home.index_stale:
        return 0
    while seq <= last and home.read_next(seq, &record) and record.seq <= last:
        home.indexer.unindex(&record)
        told += 1
        seq = record.seq + 1
    if told < live_between(home, first, last) or touches(home.lost, first, last):
        home.index_stale = True     # one that could not be read went with them
    return 0


cdef uint64_t live_between(BlockHome home, uint64_t first, uint64_t last) except? 0:
    """A lower bound of the live messages in a range, from the blocks that lie in it whole."""
    cdef uint64_t low = max(first, home.floor)
    cdef uint64_t high = min(last, home.last_seq)
    cdef uint64_t live = 0
    cdef Block* block
    cdef size_t index = home.block_index_from(low)
    if low == high:
        block = home.find_block(low)
        return block != NULL and block.flags & BLOCK_UNREADABLE != 0
    while index < home.block_count and home.blocks[index].first_seq <= high:
        block = home.blocks[index]
        if block.first_seq >= low and block.last_seq <= high:
            live += block.messages - min(block.dead, block.messages)
        elif block.flags & BLOCK_UNREADABLE:
            live += block.messages
        index += 1
    return live


cdef int salvage(BlockHome home, uint64_t* taken=NULL) except -1:
    """Records that reached their block although the log does not hold them any more."""
    cdef Record record
    cdef Block* block
    cdef FileMap file
    cdef const char* at
    cdef uint32_t size
    while True:
        block = home.active
        path = home.block_path(home.next_number if block == NULL else block.number)
        if not os.path.exists(path):
            return 0
        file = map_file(path)
        if not check_head(file.data, file.size, home.group, home.next_number if block == NULL else block.number):
            return 0
        if block == NULL and load64(file.data + 32) != home.last_seq + 1:
            return 0
        at = file.data + (BLOCK_HEAD if block == NULL else block.data_end)
        size = check_record(at, file.size - (at - file.data), home.salt) if at < file.data + file.size else 0
        if size:
            view_record(at, &record)
        if size == 0 or at[4] == KIND_ERASED or record.seq != home.last_seq + 1:
            if block == NULL or not os.path.exists(home.block_path(home.next_number)):
                return 0
            home.seal_active()
            continue
        if taken != NULL:
            taken[0] += 1
        home.place(&record, size, at, load64(at + size - 8))
        home.flush_replayed()
        if home.indexer is not None and home.show(at, &record):
            home.indexer.index(&record)


def still_lost(BlockHome home):
    """The lost ranges, without what the replay showed to be gone anyway."""
    for first, last in home.lost:
        first, last = max(first, home.floor), min(last, home.last_seq)
        while first <= last and first in home.gone:
            first += 1
        while last >= first and last in home.gone:
            last -= 1
        if first <= last:
            yield [first, last]


cdef int drop_empty_blocks(BlockHome home) except -1:
    """Blocks of which nothing lives: their files may have gone already, before the power did."""
    cdef size_t index = home.block_count
    cdef Block* block
    while index:
        index -= 1
        block = home.blocks[index]
        if block != home.active and block.dead >= block.messages and block.skips == 0 and not (
                home.cut_index and block.flags & BLOCK_CUT and os.path.exists(home.block_path(block.number))):
            home.remove_block(index)        # a cut one's file stays until a checkpoint has the cut: `remove_dead`
    return 0


cdef int end_replay(BlockHome home, bint durable, uint64_t damaged_position) except -1:
    """The log is through: what is still missing now is lost.

    When every ack is durable a block never has more than the log had: if so, the log is damaged.
    """
    cdef size_t index
    cdef uint64_t taken = 0
    drop_unended(home, damaged_position)
    if durable or not home.torn:
        salvage(home, &taken)
    if taken and durable:
        home.damage.append(f"{home.path}: the log's end does not hold, {taken} records taken from the block")
    drop_empty_blocks(home)
    home.flush_replayed()
    finish_all_erasures(home)
    home.replaying = False
    home.erased = None
    home.lost = joined_ranges(still_lost(home))
    home.gone = None
    for index in range(home.block_count):
        if home.blocks[index].flags & BLOCK_UNREADABLE:
            home.note_unreadable(home.blocks[index])
    if home.index_stale and home.indexer is not None:
        home.indexer.reset()
        home.visit(home.floor, index_record, <void*>home.indexer)
    home.index_stale = False
    home.snapshot = None
    if home.key is not None and home.active != NULL and home.active.data_end > BLOCK_HEAD and (
            not home.active.flags & BLOCK_ENCRYPTED):
        home.seal_active()      # from before encryption was turned on
    return 0


cdef int index_record(void* context, const Record* record) except -1:
    (<RecordIndexer>context).index(record)
    return 0
