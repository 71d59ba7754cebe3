/** Our sign: a pipe that leads water down. */
export function Mark({ size = 24 }: { size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="7" fill="#0e5c66" />
      <path d="M7 9h7.5c6 0 10.500 3.800 10.500 9v5h-5v-4.500c0-2.700-2-4.500-5.200-4.500H7z" fill="#e8fbfd" />
      <path d="M7 17.500h4.500c2 0 3.200 1.100 3.200 2.900V23H7z" fill="#5fd0dc" />
    </svg>
  );
}
