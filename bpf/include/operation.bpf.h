/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a system call is about: its operation, its channel and its amount, from the registers of the task
 * that is in it. Included by recorder.bpf.c after its settings; tells nothing itself.
 */
#ifndef SCHEDLAB_OPERATION_BPF_H
#define SCHEDLAB_OPERATION_BPF_H

struct operation_info {
	u64 channel;
	struct sock *sk;	/* of a socket's operation */
	u64 amount;
	u8 op;
	u8 channel_kind;
	u8 valid;
};

#define FILE_TYPE_MASK 0170000
#define FILE_TYPE_FIFO 0010000
#define FILE_TYPE_SOCKET 0140000
#define FAMILY_UNIX 1
#define FAMILY_INET 2
#define FAMILY_INET6 10

static __always_inline u64 socket_inode(struct sock *sk)
{
	struct socket *socket;
	struct file *file;
	struct inode *inode = NULL;

	/* Since 6.17. */
	if (bpf_core_field_exists(struct sock, sk_ino))
		return LOAD(struct sock, sk, sk_ino);
	socket = LOAD(struct sock, sk, sk_socket);
	file = LOAD(struct socket, socket, file);
	inode = LOAD(struct file, file, f_inode);
	return LOAD(struct inode, inode, i_ino);
}

/* One end of a connection, the same seen from both: bit 63, ports, mixed addresses. */
static __always_inline u64 inet_end(u32 address, u16 port, u32 peer_address, u16 peer_port)
{
	return 1ULL << 63 | (u64)port << 40 | (u64)peer_port << 24 |
	       ((address ^ (peer_address * 2654435761U)) & 0xffffff);
}

/* The channel of a socket: named by its receiving end. */
static __always_inline u64 socket_channel(struct sock *sk, bool sending)
{
	u16 family = LOAD(struct sock, sk, __sk_common.skc_family);

	if (family == FAMILY_UNIX) {
		struct sock *peer = sending ? LOAD(struct unix_sock, sk, peer) : NULL;

		return socket_inode(peer ? peer : sk);
	}
	if (family == FAMILY_INET || family == FAMILY_INET6) {
		u32 local = LOAD(struct sock, sk, __sk_common.skc_rcv_saddr);
		u32 remote = LOAD(struct sock, sk, __sk_common.skc_daddr);
		u16 port = LOAD(struct sock, sk, __sk_common.skc_num);
		u16 remote_port = __builtin_bswap16(LOAD(struct sock, sk, __sk_common.skc_dport));

		if (remote_port)
			return sending ? inet_end(remote, remote_port, local, port)
				       : inet_end(local, port, remote, remote_port);
	}
	return socket_inode(sk);
}

static __always_inline void resolve_socket(struct operation_info *info, struct file *file, u32 writing)
{
	struct socket *socket = LOAD(struct file, file, private_data);

	info->channel_kind = CHANNEL_SOCKET;
	info->op = writing ? OP_SOCKET_SEND : OP_SOCKET_RECEIVE;
	info->sk = LOAD(struct socket, socket, sk);
	info->channel = socket_channel(info->sk, writing);
}

/* An open file of the current task. */
static __always_inline struct file *open_file(u32 fd)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct files_struct *files = TRACED(task)->files;
	struct fdtable *table = LOAD(struct files_struct, files, fdt);
	struct file **open_files = LOAD(struct fdtable, table, fd);

	if (fd >= LOAD(struct fdtable, table, max_fds))
		return NULL;
	return LOAD(struct list_head___trace, open_files + fd, next);
}

/*
 * A file descriptor of the current task as a channel, and the operation that reads or writes it. A socket is known by
 * its operations: its inode is in no cache, since neither reads nor writes need it.
 */
static __noinline void resolve_file(struct operation_info *info, u32 fd, u32 writing)
{
	struct file *file = open_file(fd);
	const struct file_operations *operations;
	struct inode *inode;
	unsigned short mode;

	info->op = OP_OTHER_IO;
	info->channel_kind = CHANNEL_OTHER;
	info->channel = 0;
	if (!file)
		return;
	operations = LOAD(struct file, file, f_op);
	if (bpf_ksym_exists(&sock_write_iter) &&
	    LOAD(struct file_operations, operations, write_iter) == &sock_write_iter) {
		resolve_socket(info, file, writing);
		return;
	}
	inode = LOAD(struct file, file, f_inode);
	info->channel = LOAD(struct inode, inode, i_ino);
	mode = LOAD(struct inode, inode, i_mode) & FILE_TYPE_MASK;
	if (mode == FILE_TYPE_FIFO) {
		info->channel_kind = CHANNEL_PIPE;
		info->op = writing ? OP_PIPE_WRITE : OP_PIPE_READ;
	} else if (mode == FILE_TYPE_SOCKET) {
		resolve_socket(info, file, writing);
	} else if (!mode) {
		/* Anonymous inodes share one number: the object behind is the identity. An eventfd hands over counts. */
		info->channel = (u64)LOAD(struct file, file, private_data);
		if (bpf_ksym_exists(&eventfd_write) &&
		    LOAD(struct file_operations, operations, write) == &eventfd_write)
			info->op = writing ? OP_PIPE_WRITE : OP_PIPE_READ;
	}
}

struct user_timespec {
	s64 seconds;
	s64 fraction;
};

/* A timeout in the caller's memory, in ns; without one it waits for ever. */
static __always_inline u64 user_duration(u64 address, u32 fraction_ns)
{
	struct user_timespec value = {};

	if (!address)
		return -1ULL;
	if (bpf_probe_read_user(&value, sizeof(value), (void *)address))
		return -1ULL;
	return value.seconds * 1000000000ULL + value.fraction * fraction_ns;
}

static __always_inline u64 milliseconds(s32 timeout)
{
	return timeout < 0 ? -1ULL : timeout * 1000000ULL;
}

#define FUTEX_COMMAND_MASK 0x7f
#define FUTEX_PRIVATE 128

static __always_inline void resolve_futex(struct operation_info *info, u64 address, u64 command, u64 count)
{
	struct task_struct *task = bpf_get_current_task_btf();

	info->channel_kind = CHANNEL_FUTEX;
	info->channel = address;
	if (command & FUTEX_PRIVATE)
		info->channel ^= (u64)task->tgid << 40;
	switch (command & FUTEX_COMMAND_MASK) {
	case 0: case 6: case 9: case 11: case 13:
		info->op = OP_FUTEX_WAIT;
		break;
	default:
		info->op = OP_FUTEX_WAKE;
		info->amount = count;
	}
}

#define CLOCK_REALTIME 0
#define TIMER_ABSTIME 1

static __always_inline void resolve_timed(struct operation_info *info, struct pt_regs *regs, u8 class)
{
	info->channel_kind = CHANNEL_NONE;
	info->op = OP_POLL;
	switch (class) {
	case CLASS_POLL_MS:
	case CLASS_POLL_TIMESPEC: {
		s32 first = -1;
		u64 amount = class == CLASS_POLL_MS ? milliseconds(REGS_ARG2(regs))
						    : user_duration(REGS_ARG2(regs), 1);

		if (REGS_ARG1(regs) && !bpf_probe_read_user(&first, sizeof(first), (void *)REGS_ARG0(regs)) &&
		    first >= 0) {
			resolve_file(info, first, 0);
			info->op = OP_POLL;
		}
		info->amount = amount;
		break;
	}
	case CLASS_SELECT:
		info->amount = user_duration(REGS_ARG4(regs), 1000);
		break;
	case CLASS_SELECT_TIMESPEC:
		info->amount = user_duration(REGS_ARG4(regs), 1);
		break;
	case CLASS_NANOSLEEP:
		info->op = OP_SLEEP_RELATIVE;
		info->amount = user_duration(REGS_ARG0(regs), 1);
		break;
	case CLASS_CLOCK_NANOSLEEP:
		info->op = OP_SLEEP_RELATIVE;
		info->amount = user_duration(REGS_ARG2(regs), 1);
		/* Other clocks than the monotonic one would need their offset: told as an unknown duration. */
		if (REGS_ARG1(regs) & TIMER_ABSTIME)
			info->op = OP_SLEEP_ABSOLUTE;
		break;
	}
}

/* What the current task's system call is about. Nothing to tell: `valid` stays 0. */
static __noinline void resolve(struct operation_info *info, struct pt_regs *regs, u32 class)
{
	info->valid = class != CLASS_NONE;
	info->amount = 0;
	info->channel = 0;
	info->sk = NULL;
	info->channel_kind = CHANNEL_NONE;
	info->op = OP_OTHER_IO;
	switch (class) {
	case CLASS_READ:
	case CLASS_WRITE:
		info->amount = REGS_ARG2(regs);
		/* fallthrough */
	case CLASS_READ_VECTOR:
	case CLASS_WRITE_VECTOR:
		resolve_file(info, REGS_ARG0(regs), class == CLASS_WRITE || class == CLASS_WRITE_VECTOR);
		break;
	case CLASS_FUTEX:
		resolve_futex(info, REGS_ARG0(regs), REGS_ARG1(regs), REGS_ARG2(regs));
		break;
	case CLASS_FUTEX_WAIT:
		resolve_futex(info, REGS_ARG0(regs), FUTEX_PRIVATE, 0);
		break;
	case CLASS_FUTEX_WAKE:
		resolve_futex(info, REGS_ARG0(regs), FUTEX_PRIVATE | 1, REGS_ARG2(regs));
		break;
	case CLASS_EPOLL_MS:
	case CLASS_EPOLL_TIMESPEC: {
		u64 amount = class == CLASS_EPOLL_MS ? milliseconds(REGS_ARG3(regs))
						     : user_duration(REGS_ARG3(regs), 1);

		resolve_file(info, REGS_ARG0(regs), 0);
		info->op = OP_EPOLL_WAIT;
		info->channel_kind = CHANNEL_EPOLL;
		info->amount = amount;
		break;
	}
	case CLASS_WAIT:
		info->op = OP_WAIT_CHILD;
		break;
	case CLASS_YIELD:
		info->op = OP_YIELD;
		break;
	case CLASS_OTHER:
		resolve_file(info, REGS_ARG0(regs), 0);
		info->op = OP_OTHER_IO;
		break;
	default:
		resolve_timed(info, regs, class);
	}
}

static __always_inline u8 class_of(long number)
{
	return number >= 0 && number < SYSCALLS_MAX ? config.classes[number] : CLASS_NONE;
}

#endif
