import { type DefaultError, type QueryKey, useQuery, type UseQueryOptions, type UseQueryResult } from "@tanstack/react-query";

import { Problem } from "./problem";

/**
 * `useQuery` for what a screen shows. What was read stays on the screen when a later read fails: the banner says that it is old.
 * What was never read says why at the first failure,
 * while it is tried again. A refusal is always told.
 */
export function useRead<Data = unknown, Shown = Data, Key extends QueryKey = QueryKey>(options: UseQueryOptions<Data, DefaultError, Shown, Key>): Pick<UseQueryResult<Shown>, "data" | "error" | "refetch"> {
  const query = useQuery(options);
  const refused = query.error instanceof Problem && query.error.status >= 400 && query.error.status < 500;
  const error = query.data === undefined ? (query.error ?? query.failureReason) : refused ? query.error : null;
  return { data: query.data, error, refetch: query.refetch };
}
