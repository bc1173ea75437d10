/** Measures the longest of several calls. */
export class Stopwatch {
  calls = 0;
  longest_s = 0;
  longest_cpu_s = 0;
  peak_heap_mb = 0;

  async time(work: () => Promise<void>): Promise<number> {
    const [start, cpu] = [performance.now(), process.cpuUsage()];
    await work();
    this.sample();
    this.calls += 1;
    const seconds = (performance.now() - start) / 1000;
    const {user, system} = process.cpuUsage(cpu);
    this.longest_s = Math.max(this.longest_s, seconds);
    this.longest_cpu_s = Math.max(this.longest_cpu_s, (user + system) / 1e6);
    return seconds;
  }

  sample(): void {
    this.peak_heap_mb = Math.max(this.peak_heap_mb, process.memoryUsage().heapUsed / 1e6);
  }
}
